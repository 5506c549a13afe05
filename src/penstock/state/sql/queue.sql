-- name: lock_enqueue
-- Short and exclusive for one generation.
select pg_advisory_xact_lock(('generation'::regclass::oid::int8 << 32) + %(generation)s::bigint);

-- name: share_generations
-- The share lock keeps them from being replaced until the tasks are in.
select from generation where no = any (%(generations)s) order by no for share;

-- name: working_generations
-- Those that are worked on.
select g.no from generation g join model m on m.id = g.model
where g.no = any (%(generations)s) and m.removed_at is null
  and (
    g.state = 'building'
    or (g.state = 'current'
      and not exists (select from generation b where b.model = g.model and b.state = 'building'))
  )
order by g.no;

-- name: insert_task
-- Active scopes of a generation never overlap: the exclusion constraint turns the second one away without an error.
-- Parts take the place of their batch in the queue, so that what is wrong with it is known before more of it is tried.
insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts, split_from, run_after)
select m.id, g.no, %(lane)s, %(ranges)s, %(chunks)s, %(choices)s, %(reason)s, m.retries + 1, %(split_from)s,
  coalesce((select whole.run_after from task whole where whole.id = %(split_from)s), clock())
from generation g join model m on m.id = g.model
where g.no = %(generation)s
on conflict do nothing;

-- name: insert_turns
-- A lane that never had work has no turn; it starts as the one that waited longest.
insert into turn (model, lane)
select distinct g.model, wanted.lane
from unnest(%(generations)s::bigint[], %(lanes)s::text[]) as wanted (generation, lane)
join generation g on g.no = wanted.generation
where not exists (select from turn u where u.model = g.model and u.lane = wanted.lane)
on conflict do nothing;

-- name: lock_claim
-- One claim at a time, for about a millisecond, so that max_inflight is exact.
select pg_advisory_xact_lock(('task'::regclass::oid::int8 << 32) + 2);

-- name: claim
-- The lane of a model that was served least recently, in claims; forward counts as served 8 claims earlier, repair 4. Of
-- it the first due task. So no backlog, however long, delays a lane by more than one claim per lane that has work.
-- The lanes are sorted before their tasks are looked for: usually a few look-ups are enough. The clock is read once: an
-- index cannot be searched with a function that may change. Rows that somebody is just changing are skipped, so a few
-- more stand ready. The CTE is materialised: a bare sub-select may be run again by the planner and lock more rows than
-- are updated. A worker that is known and whose session lock is not held (PostgreSQL was restarted, and its heartbeat has
-- not come back yet) gets nothing: a reaper would take it away at once.
with moment as materialized (
  select clock() as at
), absent as materialized (
  select from worker w
  where w.id = %(worker)s and not exists (
    select from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
      and l.database = (select oid from pg_database where datname = current_database())
      and l.classid = 'worker'::regclass::oid and l.objid = w.no::oid
  )
), running as (
  select model, count(*) as n from task where state = 'running' group by model
), lane as materialized (
  select u.model, u.lane, u.served - case u.lane when 'forward' then 8 when 'repair' then 4 else 0 end as served
  from turn u join model m on m.id = u.model left join running r on r.model = u.model
  where m.removed_at is null and m.desired = 'running' and coalesce(r.n, 0) < m.max_inflight
    and (%(models)s::text[] is null or u.model = any (%(models)s::text[]))
  order by served
), waiting as materialized (
  select first.id, first.run_after, lane.served
  from lane cross join moment cross join lateral (
    select t.id, t.run_after from task t
    where t.model = lane.model and t.lane = lane.lane and t.state in ('queued', 'retrying')
      and t.run_after <= moment.at
      and not exists (select from suspension s where s.generation = t.generation and s.active)
    order by t.run_after, t.id limit 2
  ) first
  order by lane.served, first.run_after, first.id limit 16
), next as materialized (
  select t.id
  from waiting w join task t on t.id = w.id
  where t.state in ('queued', 'retrying') and not exists (select from absent)
  order by w.served, w.run_after, w.id
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
), served as (
  update turn u set served = nextval('claim_no') from claimed c where u.model = c.model and u.lane = c.lane
)
select c.id as task, c.uuid, c.attempt, c.lease_token as token, c.worker, c.generation, c.max_attempts, g.epoch,
  c.model, c.lane, c.chunks, c.choices, c.reason
from claimed c join generation g on g.no = c.generation;

-- name: unheard_claim
-- What stands there under this worker's name and it does not know of: the answer to its claim got lost.
select c.id as task, c.uuid, c.attempt, c.lease_token as token, c.worker, c.generation, c.max_attempts, g.epoch,
  c.model, c.lane, c.chunks, c.choices, c.reason
from task c join generation g on g.no = c.generation
where c.state = 'running' and c.worker = %(worker)s and c.id <> all (%(held)s::bigint[])
order by c.id limit 1;

-- name: fence
-- Zero rows: another worker owns the task, or it has ended.
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

-- name: lock_active_tasks
-- An attempt that is just completing one of them is waited for.
select id from task
where (id = %(task)s or model = %(model)s or generation = any (%(generations)s))
  and state in ('queued', 'running', 'retrying')
order by id for update;
