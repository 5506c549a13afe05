-- name: lock_kept_generations
-- Every table that could still be served, by a rollback too; in ascending order, as everywhere.
select no, model from generation where model = any (%(models)s) and state <> 'purged' order by no for no key update;

-- name: lock_key
-- A second request for the same at the same moment waits: a table without consumers has no row that could be locked.
select pg_advisory_xact_lock(
  ('invalidation'::regclass::oid::int8 << 32) + (hashtext(%(model)s || ' ' || %(key)s)::int8 & 4294967295));

-- name: known_invalidation
-- The same key asks once.
select id, ranges, row_filter from invalidation where model = %(model)s and idem_key = %(key)s;

-- name: last_change
-- The newest snapshot of a source as it is now that changed something there, handled already or not.
select s.model, null as generation, s.table_id, max(changed.snapshot) as snapshot
from source s join (
  select model, input_table_id as table_id, input_snapshot as snapshot
  from invalidation where cause = 'source' and model = %(model)s and ranges && %(ranges)s::int8multirange
  union all
  select model, table_id, snapshot
  from event where generation is null and model = %(model)s and ranges && %(ranges)s::int8multirange
) changed on changed.model = s.model and changed.table_id = s.table_id
where s.model = %(model)s and changed.snapshot <= s.snapshot
group by s.model, s.table_id;

-- name: insert_invalidation
-- Kept as history, closed when no model has anything left to do.
insert into invalidation (
  model, ranges, reason, actor, cause, row_filter, told, input_generation, input_table_id, input_snapshot, idem_key
)
values (
  %(model)s, %(ranges)s, %(reason)s, %(actor)s, %(cause)s, %(row_filter)s, %(row_counts)s, %(input_generation)s,
  %(input_table_id)s, %(input_snapshot)s, %(idem_key)s
)
returning id;

-- name: absorb_invalidations
-- Those because of earlier snapshots of the same input of which nothing is done yet and that ask nothing that the new one
-- does not ask: whoever answers the new one answers them. What was stale in them has waited since then.
with older as materialized (
  select i.id from invalidation mine join invalidation i on i.model = mine.model and i.id < mine.id
  where mine.id = %(invalidation)s and i.closed_at is null and i.cause = mine.cause and i.idem_key is null
    and i.input_snapshot <= mine.input_snapshot
    and i.input_table_id is not distinct from mine.input_table_id
    and i.input_generation is not distinct from mine.input_generation
    and not exists (
      select from invalidation_target t
      left join invalidation_target taking on taking.invalidation = mine.id and taking.generation = t.generation
      where t.invalidation = i.id
        and (taking.generation is null or t.remaining <> t.ranges or not t.ranges <@ taking.ranges)
    )
), asked as (
  delete from invalidation_target t using older where t.invalidation = older.id returning t.generation, t.since
), waited as (
  update invalidation_target t set since = least(t.since, first.since)
  from (select generation, min(since) as since from asked group by generation) first
  where t.invalidation = %(invalidation)s and t.generation = first.generation
)
delete from invalidation i using older where i.id = older.id returning i.ranges, i.told as counts;

-- name: extend_invalidation
-- It speaks for those that it took in.
update invalidation set ranges = %(ranges)s, told = %(row_counts)s where id = %(invalidation)s;

-- name: active_ranges
-- Queued, running and waiting for a retry.
select ranges from task where generation = %(generation)s and state in ('queued', 'running', 'retrying');

-- name: next_epoch
-- Orders marks and intents of one generation.
update generation set epoch = epoch + 1 where no = %(generation)s returning epoch;

-- name: insert_target
-- All of it is still to be done.
insert into invalidation_target (invalidation, generation, epoch, ranges, remaining, since)
values (
  %(invalidation)s, %(generation)s, %(epoch)s, %(ranges)s, %(ranges)s, case when %(stale)s then clock() end
);

-- name: open_targets
-- What is still asked of these positions, and which change of which input asked it.
select t.invalidation, t.epoch, t.remaining, i.model, i.input_generation as generation, i.input_table_id as table_id,
  i.input_snapshot as snapshot, (
    select coalesce(jsonb_agg(array(
      select o.parent from edge o where o.child = e.child and o.group_no = e.group_no and o.ordinal < e.ordinal
    )), '[]')
    from edge e where e.child = g.model and e.parent = i.model
  ) as preferred
from invalidation_target t join invalidation i on i.id = t.invalidation join generation g on g.no = t.generation
where t.generation = %(generation)s and not isempty(t.remaining) and t.remaining && %(ranges)s::int8multirange
order by t.invalidation;

-- name: answer_targets
-- Part of what is asked may be left.
update invalidation_target set remaining = remaining - %(ranges)s::int8multirange
where generation = %(generation)s and invalidation = any (%(invalidations)s);

-- name: drop_targets
-- All that is still asked of a table that begins again.
update invalidation_target set remaining = '{}' where generation = %(generation)s and not isempty(remaining)
returning invalidation;

-- name: reopen_targets
-- Work that was under way came too early for them: now something of them is stale.
update invalidation_target set since = coalesce(since, clock())
where generation = %(generation)s and invalidation = any (%(invalidations)s);

-- name: lock_invalidations
-- Of two that answer the last targets at once neither would see the other's answer, and none would close it.
select from invalidation where id = any (%(invalidations)s) order by id for no key update;

-- name: close_invalidations
-- When the last generation that is still worked on is done. Null asks about all: tables that gave way to others, or whose
-- model was removed, are not waited for any more. In one order, because several may do this at once.
with done as materialized (
  select i.id from invalidation i
  where (%(invalidations)s::bigint[] is null or i.id = any (%(invalidations)s::bigint[])) and i.closed_at is null
    and not exists (
      select from invalidation_target t join generation g on g.no = t.generation join model m on m.id = g.model
      where t.invalidation = i.id and not isempty(t.remaining) and g.state in ('building', 'current')
        and m.removed_at is null
    )
  order by i.id for no key update
)
update invalidation i set closed_at = clock() from done where i.id = done.id;

-- name: insert_event
-- The same event twice is one. Readers may have read a table that is gone: by a snapshot number that it had, too, it is
-- unknown whether they have read the change.
insert into event (id, kind, model, generation, table_id, snapshot, ranges, told)
select %(id)s, 'changed', %(model)s, %(generation)s::text, %(table_id)s,
  case when exists (
    select from generation g where g.id = %(generation)s::uuid and g.lost_snapshot >= %(snapshot)s::bigint
  ) then null else %(snapshot)s::bigint end, %(ranges)s, %(row_counts)s
on conflict (id) do nothing;

-- name: next_event
-- Several processes may handle events at once: each takes another one.
select no, id, model, generation, table_id, snapshot, ranges, told as row_counts, attempts, last_error
from event where not dead and available_at <= clock()
order by no limit 1 for update skip locked;

-- name: consumers
-- Removed models too: they may come back with the table they keep. With the members listed before it in each group.
select e.child, m.removed_at is not null as removed, e.before_pos, e.after_pos, array(
    select o.parent from edge o where o.child = e.child and o.group_no = e.group_no and o.ordinal < e.ordinal
  ) as preferred
from edge e join model m on m.id = e.child
where e.parent = %(model)s
order by e.child;

-- name: lock_consumers
-- All generations of the consumers that are not purged, in ascending order, and whether each is the one that is worked on.
select g.no, g.model,
  g.state = 'building' or (g.state = 'current' and not exists (
    select from generation b where b.model = g.model and b.state = 'building')) as working
from generation g where g.model = any (%(models)s) and g.state <> 'purged'
order by g.no for no key update of g;

-- name: kept_consumers
-- The same without a lock, for reading.
select g.no, g.model,
  g.state = 'building' or (g.state = 'current' and not exists (
    select from generation b where b.model = g.model and b.state = 'building')) as working
from generation g where g.model = any (%(models)s) and g.state <> 'purged'
order by g.no;

-- name: delete_event
-- In the transaction that wrote the marks.
delete from event where no = %(no)s;

-- name: postpone_event
-- A poisoned event steps aside.
update event
set attempts = attempts + 1, last_error = %(error)s,
  available_at = clock() + make_interval(secs => 0.1 * 2 ^ attempts)
where no = %(no)s;

-- name: bury_event
-- Its consumers were asked to do everything; the row stays for people.
update event set dead = true where no = %(no)s;

-- name: is_working
-- Whether any model reads this build.
select state in ('building', 'current') from generation where id = %(generation)s::uuid;
