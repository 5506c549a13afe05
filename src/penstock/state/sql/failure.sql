-- name: stored_following
-- For a worker that lost the answer: its own attempt, with its own token, has ended already.
select followed_by from attempt
where task = %(task)s and n = %(attempt)s and token = %(token)s and outcome = 'failed';

-- name: earlier_endings
-- What the budget is counted from; attempts that were given back cost nothing.
-- A worker that was heard of afterwards had only lost its connection.
select a.error_class, a.worker, a.outcome = 'lost' and w.id is not null as came_back
from attempt a left join worker w on w.id = a.worker and w.heartbeat_at > a.ended_at
where a.task = %(task)s and a.n < %(attempt)s and a.outcome in ('failed', 'lost')
order by a.n;

-- name: errors_of_family
-- Of storage or Spark, for the batch that a task is a part of and all its parts; `above`: for what the task is a part of.
with recursive up as (
  select t.id, t.split_from from task t where t.id = %(task)s
  union all
  select t.id, t.split_from from up join task t on t.id = up.split_from
), down as (
  select up.id from up where up.split_from is null
  union all
  select t.id from down d join task t on t.split_from = d.id
)
select a.error, exists (select from up where up.id = d.id) as above
from down d join attempt a on a.task = d.id
where a.outcome = 'failed' and a.error_class = 'engine' and d.id <> %(task)s;

-- name: abandoned_tasks
-- The lease ran out, or the worker's session lock is gone, which PostgreSQL notices long before. Whoever is just
-- completing holds the row and is skipped. A worker never takes its own tasks away for a lock that it is about to renew.
select t.id, t.attempt, t.worker, t.generation, t.max_attempts, t.model, t.lane, t.chunks, t.choices, t.reason
from task t left join worker w on w.id = t.worker
where t.state = 'running'
  and (
    t.lease_expires_at <= clock()
    or (w.id is not null and w.id is distinct from %(own_worker)s
      -- a server that was just started has not heard of its workers yet
      and (w.server = pg_postmaster_start_time()
        or clock() - pg_postmaster_start_time() > interval '10 seconds')
      and not exists (
      select from pg_locks l
      where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and l.classid = 'worker'::regclass::oid and l.objid = w.no::oid
    ))
  )
order by t.id
for update of t skip locked;

-- name: deaths_in_a_row
-- Of tasks about the same positions, since they were last covered or their hold was ended.
select count(*) from task mine join task d on d.generation = mine.generation and d.claim_range && mine.claim_range
where mine.id = %(task)s and d.state = 'dead' and d.held_until is not null
  and not exists (
    select from coverage c where c.kind = 'cover' and c.span && mine.claim_range and c.at >= d.finished_at
  );

-- name: bury_task
-- Its scope is not planned again before the hold ends.
update task
set state = 'dead', lease_token = null, lease_expires_at = null, finished_at = clock(),
  held_until = clock() + make_interval(secs => %(hold)s)
where id = %(task)s;

-- name: absolve
-- A worker that is heard of again was not killed by what it did: what died because it seemed lost is planned at once.
with blamed as materialized (
  select t.id from task t join attempt a on a.task = t.id and a.n >= t.attempt - 1
  join attempt last on last.task = t.id and last.n = t.attempt and last.outcome = 'lost'
  where t.state = 'dead' and t.held_until is not null and a.outcome = 'lost' and a.worker = any (%(workers)s)
  order by t.id for update of t skip locked
)
update task t set held_until = null from blamed b where t.id = b.id;
