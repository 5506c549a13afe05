-- name: lock_kept_generations
-- Every table that could still be served, by a rollback too; in ascending order, like everybody.
select no from generation where model = any (%(models)s) and state <> 'purged' order by no for no key update;

-- name: known_invalidation
-- The same key asks once.
select id from invalidation where idem_key = %(key)s;

-- name: insert_invalidation
-- Kept as history, closed when nobody has anything left to do.
insert into invalidation (
  model, ranges, reason, actor, input_generation, input_table_id, input_snapshot, idem_key
)
values (
  %(model)s, %(ranges)s, %(reason)s, %(actor)s, %(input_generation)s, %(input_table_id)s, %(input_snapshot)s,
  %(idem_key)s
)
returning id;

-- name: active_ranges
-- Queued, running and waiting for a retry.
select ranges from task where generation = %(generation)s and state in ('queued', 'running', 'retrying');

-- name: next_epoch
-- Orders marks and intents of one generation.
update generation set epoch = epoch + 1 where no = %(generation)s returning epoch;

-- name: insert_target
-- All of it is still to be done.
insert into invalidation_target (invalidation, generation, epoch, ranges, remaining)
values (%(invalidation)s, %(generation)s, %(epoch)s, %(ranges)s, %(ranges)s);

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

-- name: close_invalidations
-- When the last generation that is still worked on is done.
update invalidation i set closed_at = clock()
where i.id = any (%(invalidations)s) and i.closed_at is null
  and not exists (
    select from invalidation_target t join generation g on g.no = t.generation
    where t.invalidation = i.id and not isempty(t.remaining) and g.state in ('building', 'current')
  );

-- name: insert_event
-- The same news twice is once.
insert into event (id, kind, model, generation, table_id, snapshot, ranges)
values (%(id)s, 'changed', %(model)s, %(generation)s, %(table_id)s, %(snapshot)s, %(ranges)s)
on conflict (id) do nothing;

-- name: next_event
-- Several processes may handle events at once: each takes another one.
select no, id, model, generation, table_id, snapshot, ranges, attempts, last_error
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
-- Whether anybody reads this build.
select state in ('building', 'current') from generation where id = %(generation)s::uuid;
