-- name: present
-- The clock that slots are counted on.
select clock() as present;

-- name: keep_schedules
-- What the revision no longer asks for fires no more.
delete from schedule s
where not exists (
  select from unnest(%(models)s::text[], %(lanes)s::text[]) as wanted (model, lane)
  where wanted.model = s.model and wanted.lane = s.lane
);

-- name: upsert_schedule
-- An unchanged cadence goes on where it stands: applying a revision moves no slot.
insert into schedule as s (model, lane, spec, next_at)
values (%(model)s, %(lane)s, %(spec)s, %(next_at)s)
on conflict (model, lane) do update set spec = excluded.spec, next_at = excluded.next_at, last_slot = null
where s.spec <> excluded.spec;

-- name: take_slot
-- Compare and set: of all who saw this slot, one moves it on.
update schedule set last_slot = %(at)s, next_at = %(next_at)s
where model = %(model)s and lane = %(lane)s and next_at = %(at)s;

-- name: state_schedules
-- Paused models too: their slots pass.
select s.model, s.lane, s.spec, s.next_at, s.last_slot
from schedule s join model m on m.id = s.model
where m.removed_at is null
order by s.model, s.lane;
