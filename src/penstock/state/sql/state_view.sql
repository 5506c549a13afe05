-- name: state_moment
-- One row about everything: with whose work changed since the last look, and from which transaction on the next look
-- has to read. Those before it have all ended, so that what they wrote is seen now.
select
  clock() as at,
  (select hash from revision where state = 'active') as revision,
  array(select id from model where desired = 'paused' and removed_at is null) as paused,
  (select count(*) from event where not dead) as events,
  pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
  array(select distinct generation from task where changed >= %(since)s::xid8) as busy;

-- name: state_lineage
-- A model and whatever it is made of.
with recursive lineage (model) as (
  select %(model)s::text union select e.parent from lineage l join edge e on e.child = l.model
)
select model from lineage;

-- name: state_generations
-- Those that serve or are being built, of models that are still in the project; of a second look only those that
-- changed, whatever became of them.
select g.no, g.id, g.model, g.fingerprint, g.state, g.location, g.epoch, g.accepted_snapshot,
  g.audited_snapshot, g.data_timestamp
from generation g join model m on m.id = g.model
where m.removed_at is null and m.type <> 'source'
  and case when %(since)s::xid8 is null then g.state in ('building', 'current') else g.changed >= %(since)s::xid8 end
  and (%(models)s::text[] is null or g.model = any (%(models)s::text[]))
order by g.no;

-- name: state_sources
-- With the error of the last look, beside the bounds of the last good one.
select s.model, s.table_id, s.snapshot, s.schema_hash, s.columns, s.min_pos, s.end_pos, s.bytes, s.rows,
  s.full_scan_at, s.incremental_scan_at, s.observed_at, s.error, s.expired_pos,
  s.only_spark, s.change_feed, s.ignored_rows, s.ignored_since, s.looked_at
from source s join model m on m.id = s.model
where m.removed_at is null and (%(models)s::text[] is null or s.model = any (%(models)s::text[]));

-- name: state_tasks
-- Active tasks; dead ones and those that a person cancelled, with what has been covered of them since, and whether they
-- are held: for a run that began at some time whatever ended since then, else until the hold is over. What always fails
-- dies again and again: of those about the same positions the last one speaks for all.
with ended as materialized (
  select distinct on (generation, state, ranges) id
  from task
  where generation = any (%(generations)s) and (state = 'dead' or (state = 'cancelled' and held_until is not null))
    and (%(dead_since)s::timestamptz is null or finished_at >= %(dead_since)s::timestamptz)
  order by generation, state, ranges, id desc
), chosen as materialized (
  select id from ended
  union all
  select id from task where generation = any (%(generations)s) and state in ('queued', 'running', 'retrying')
)
-- include: chosen_tasks

-- name: changed_tasks
-- The same of the tasks that changed since a look, whatever became of them, and of those with these ids.
with chosen as materialized (
  select id from task where changed >= %(since)s::xid8 and generation = any (%(generations)s)
  union
  select unnest(%(ids)s::bigint[])
)
-- include: chosen_tasks

-- part: chosen_tasks
-- Looked up one by one: they are few, and the planner does not know it.
select t.id, t.generation, t.state, t.lane, t.ranges,
  coalesce(since.covered, '{}'::int8multirange) as covered_since, last.error,
  case when t.held_until = 'infinity' then '9999-01-01'::timestamptz else t.held_until end as held_until,
  t.finished_at
from chosen cross join lateral (select * from task where id = chosen.id offset 0) t
left join lateral (
  select range_agg(c.range) as covered from coverage c
  where t.state in ('dead', 'cancelled') and c.kind = 'cover' and c.span && t.claim_range and c.at >= t.finished_at
) since on true
left join attempt last on last.task = t.id and last.n = t.attempt - (case when t.state = 'running' then 1 else 0 end)
order by t.id desc;

-- name: covered_after
-- What was covered by rows after these, generation by generation.
select known.generation, run.ranges
from unnest(%(generations)s::bigint[], %(through)s::bigint[]) as known (generation, through)
cross join lateral (
  select range_agg(c.range) as ranges from coverage c
  where c.generation = known.generation and c.id > known.through and c.kind = 'cover'
) run
where run.ranges is not null;

-- name: reopened_in
-- The same for some positions: what cannot be computed, or is under way, says nothing about the rest.
select t.generation, min(t.since) as since, max(i.created_at) as latest, bool_and(i.cause = 'source') as gathers
from invalidation_target t join invalidation i on i.id = t.invalidation
where t.generation = %(generation)s and t.since is not null and t.remaining && %(scope)s::int8multirange
group by t.generation;

-- name: state_reopened
-- Since when something of a generation is stale, and whether it is only because of rows of sources.
select t.generation, min(t.since) as since, max(i.created_at) as latest, bool_and(i.cause = 'source') as gathers
from invalidation_target t join invalidation i on i.id = t.invalidation
where t.generation = any (%(generations)s) and not isempty(t.remaining) and t.since is not null
group by t.generation;

-- name: state_refreshed
-- What the rows of dynamic tables were made from, and how long their last refreshes took: nine of ten at most so long.
select g.model, f.inputs, f.data_timestamp, coalesce(taken.seconds, 0) as seconds
from generation g join model m on m.id = g.model
cross join lateral (
  select inputs, data_timestamp from frontier where generation = g.no order by id desc limit 1
) f
cross join lateral (
  select percentile_cont(0.9) within group (order by extract(epoch from last.ended_at - last.started_at)) as seconds
  from (
    select a.started_at, a.ended_at from task t join attempt a on a.task = t.id and a.outcome = 'succeeded'
    where t.model = g.model and t.generation = g.no and t.lane = 'refresh'
    order by t.id desc limit 20
  ) last
) taken
where g.no = any (%(generations)s) and m.type = 'dynamic';
