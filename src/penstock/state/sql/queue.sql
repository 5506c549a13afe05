-- name: lock_enqueue
-- Short and exclusive; named after the table of tasks of this schema.
select pg_advisory_xact_lock(('task'::regclass::oid::int8 << 32) + 1);

-- name: share_working_generations
-- Those that are worked on; the share lock holds off whoever wants to replace them until the tasks are in.
select g.no from generation g join model m on m.id = g.model
where g.no = any (%(generations)s) and m.removed_at is null
  and (
    g.state = 'building'
    or (g.state = 'current'
      and not exists (select from generation b where b.model = g.model and b.state = 'building'))
  )
order by g.no for share of g;

-- name: insert_task
-- Active scopes of a generation never overlap: the exclusion constraint turns the second one away without an error.
insert into task (model, generation, lane, ranges, chunks, choices, reason, priority, max_attempts, split_from)
select m.id, g.no, %(lane)s, %(ranges)s, %(chunks)s, %(choices)s, %(reason)s,
  case %(lane)s when 'forward' then 30 when 'repair' then 20 else 10 end, m.retries + 1, %(split_from)s
from generation g join model m on m.id = g.model
where g.no = %(generation)s
on conflict do nothing;

-- name: lock_claim
-- One claim at a time, for about a millisecond, so that max_inflight is exact.
select pg_advisory_xact_lock(('task'::regclass::oid::int8 << 32) + 2);

-- name: claim
-- The fairest due task that nobody holds: by lane, a point more for every minute of waiting, then the model with the least
-- in flight. Rows that somebody is just changing are skipped. The CTE is materialised: a bare sub-select may be run again
-- by the planner and lock more rows than are updated.
with running as (
  select model, count(*) as n from task where state = 'running' group by model
), next as materialized (
  select t.id
  from task t join model m on m.id = t.model left join running r on r.model = t.model
  where t.state in ('queued', 'retrying') and t.run_after <= clock()
    and m.removed_at is null and m.desired = 'running' and coalesce(r.n, 0) < m.max_inflight
    and (%(models)s::text[] is null or t.model = any (%(models)s::text[]))
  order by t.priority + least(floor(extract(epoch from clock() - t.run_after) / 60), 60) desc,
    coalesce(r.n, 0), t.run_after, t.id
  limit 1
  for update of t skip locked
), claimed as (
  update task t
  set state = 'running', attempt = t.attempt + 1, lease_token = gen_random_uuid(), worker = %(worker)s,
    lease_expires_at = clock() + make_interval(secs => %(lease_seconds)s)
  from next where t.id = next.id
  returning t.*
), begun as (
  insert into attempt (task, n, worker, token) select id, attempt, worker, lease_token from claimed
)
select c.id as task, c.uuid, c.attempt, c.lease_token as token, c.worker, c.generation, c.max_attempts, g.epoch,
  c.model, c.lane, c.chunks, c.choices, c.reason
from claimed c join generation g on g.no = c.generation;

-- name: fence
-- Zero rows: somebody else owns the task, or it has ended.
select from task
where id = %(task)s and attempt = %(attempt)s and lease_token = %(token)s and state = 'running'
for update;

-- name: end_attempt
-- Only an open attempt can end.
update attempt
set outcome = %(outcome)s, followed_by = %(followed_by)s, error_class = %(error_class)s, error = %(error)s,
  metrics = coalesce(%(metrics)s::jsonb, metrics), ended_at = clock()
where task = %(task)s and n = %(attempt)s and outcome is null;

-- name: finish_task
-- The token goes with the lease; the attempt keeps it.
update task
set state = %(state)s, lease_token = null, lease_expires_at = null, finished_at = clock()
where id = %(task)s;

-- name: requeue_task
-- `queued` starts at once, `retrying` after its pause.
update task
set state = %(state)s, lease_token = null, lease_expires_at = null,
  run_after = clock() + make_interval(secs => %(after_seconds)s)
where id = %(task)s;
