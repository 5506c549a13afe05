-- name: lock_failures
-- Two chunks that fail at the same time would not see each other.
select pg_advisory_xact_lock(('suspension'::regclass::oid::int8 << 32) + %(generation)s::bigint);

-- name: split_from
-- The batch that a task is a part of.
select split_from from task where id = %(task)s and split_from is not null;

-- name: is_suspended
-- Asked under the lock above.
select active from suspension where generation = %(generation)s;

-- name: failures_in_a_row
-- What was given up for such an error since something was last accepted, or the holds of dead tasks were ended.
with accepted as materialized (
  select c.at from coverage c where c.generation = %(generation)s and c.kind = 'cover' order by c.id desc limit 1
), newest as materialized (
  -- more than one plan orders: a long history costs nothing
  select t.* from task t where t.model = %(model)s order by t.id desc limit 5000
), recent as materialized (
  select t.id, t.chunks, t.split_from, t.attempt from newest t
  where t.generation = %(generation)s
    and (t.state = 'superseded' or (t.state = 'dead' and t.held_until is not null))
  order by t.id desc limit 200
)
select r.id as task, r.chunks, r.split_from, a.error
from recent r join attempt a on a.task = r.id and a.n = r.attempt
where a.outcome = 'failed' and a.error_class = %(error_class)s
  and not exists (select from accepted where accepted.at >= a.ended_at)
order by r.id desc;

-- name: suspend
-- With how far its inputs were when the attempt read them. It counts on when nothing was accepted since the last time.
insert into suspension (generation, active, error, alike, inputs, times, passing)
select t.generation, true, %(error)s, %(alike)s, input_marks(t.model) || coalesce(had.marks, '{}'), 1, %(passing)s
from task t join attempt a on a.task = t.id and a.n = %(attempt)s
left join lateral (
  select jsonb_object_agg(
    pin.key, coalesce(pin.value ->> 'generation', pin.value ->> 'table_id', '') || '@' || (pin.value ->> 'snapshot')
  ) as marks
  from jsonb_each(a.inputs) pin where pin.value ->> 'snapshot' is not null
) had on true
where t.id = %(task)s
on conflict (generation) do update
set active = true, error = excluded.error, alike = excluded.alike, inputs = excluded.inputs, since = clock(),
  passing = excluded.passing,
  times = case
    when suspension.alike = excluded.alike and not exists (
      select from coverage c
      where c.generation = suspension.generation and c.kind = 'cover' and c.at >= suspension.since
    ) then suspension.times + 1
    else 1
  end;

-- name: drop_waiting
-- They are planned anew when it goes on, as batches again. A transaction that holds one of them is about to change it.
with waiting as materialized (
  select id from task where generation = %(generation)s and state in ('queued', 'retrying')
  order by id for update skip locked
)
update task t set state = 'cancelled', finished_at = clock() from waiting w where t.id = w.id;

-- name: suspended_generations
-- Of these models.
select s.generation from suspension s join generation g on g.no = s.generation
where g.model = any (%(models)s) and s.active order by s.generation;

-- name: go_on
-- How often it was in vain is kept.
update suspension set active = false where generation = %(generation)s and active;

-- name: begin_again
-- A person acts: what was in vain before counts for nothing.
delete from suspension where generation = %(generation)s and active;

-- name: forget_deaths
-- What died of the same cause is planned at once; what was cancelled stays away.
with held as materialized (
  select id from task where generation = %(generation)s and state = 'dead' and held_until is not null
  order by id for update skip locked
)
update task t set held_until = null from held h where t.id = h.id;

-- name: state_suspensions
-- Those of generations that are worked on, and whether an input has moved on since.
select g.model, s.generation, s.error, s.since, s.times, s.inputs <> input_marks(g.model) as moved, s.passing
from suspension s join generation g on g.no = s.generation
where s.active and s.generation = any (%(generations)s);
