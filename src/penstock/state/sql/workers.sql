-- name: forget_old_workers
-- Names of processes are never used again; a day is enough to explain a lost attempt.
delete from worker w
where w.heartbeat_at < clock() - interval '1 day'
  and not exists (select from task t where t.state = 'running' and t.worker = w.id);

-- name: register_worker
-- The new number is visible to reapers only together with its lock: both come with this transaction.
insert into worker (id, info) values (%(worker)s, %(info)s)
on conflict (id) do update
set no = default, server = default, info = excluded.info, since = clock(), heartbeat_at = clock()
returning no;

-- name: lock_worker
-- For the session, not the transaction.
select pg_advisory_lock(('worker'::regclass::oid::int8 << 32) + %(no)s::bigint);

-- name: heartbeat
-- Fenced: who lost the task gets no row back. A late heartbeat of the current attempt counts: it is slow but alone. A
-- row that somebody holds is not waited for: mostly it is being published, and one slow commit must not keep the other
-- leases from being extended. While it is held nobody reaps it, and the next heartbeat comes long before its lease ends.
with mine as materialized (
  select t.id, held.token
  from unnest(%(tasks)s::bigint[], %(attempts)s::int[], %(tokens)s::uuid[]) as held (task, attempt, token)
  join task t on t.id = held.task and t.attempt = held.attempt and t.lease_token = held.token and t.state = 'running'
), free as materialized (
  select t.id from mine held join task t on t.id = held.id and t.lease_token = held.token
  order by t.id for update of t skip locked
), extended as (
  update task t set lease_expires_at = clock() + make_interval(secs => %(lease_seconds)s)
  from free where t.id = free.id
)
select token from mine;

-- name: silent_workers
-- Those of these that were not heard of for so long that they may have been taken for lost.
select id from worker where id = any (%(workers)s) and heartbeat_at < clock() - make_interval(secs => %(seconds)s);

-- name: beat_workers
-- For people: liveness is the lock.
update worker set heartbeat_at = clock() where id = any (%(workers)s);

-- name: say_stopping
-- Said once; a worker that stops never takes it back.
update worker set stopping = true where id = %(worker)s;

-- name: live_workers
-- Those whose session lock is held, with how many tasks each has in hand.
select w.id, w.info ->> 'host' as host, (w.info ->> 'pid')::int as pid, w.since, w.heartbeat_at as heartbeat,
  w.info ->> 'role' as role, (w.info ->> 'slots')::int as slots, w.stopping,
  (select count(*) from task t where t.state = 'running' and t.worker = w.id) as tasks
from worker w
where exists (
  select from pg_locks l
  where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
    and l.database = (select oid from pg_database where datname = current_database())
    and l.classid = 'worker'::regclass::oid and l.objid = w.no::oid
)
order by w.since;
