-- Which transaction last changed a generation or a task, so that whoever looks again reads only what changed since:
-- everything that a transaction before the oldest one still open at the last look wrote was seen then.
alter table generation add column changed xid8 not null default pg_current_xact_id();
alter table task add column changed xid8 not null default pg_current_xact_id();
create index task_changed on task (changed);
create index task_let_go on task (generation) where state = 'cancelled' and held_until is not null;

create function note_change() returns trigger language plpgsql as $$
begin
  new.changed := pg_current_xact_id();
  return new;
end
$$;
create trigger generation_changes before update on generation for each row execute function note_change();
-- Not for a lease that is extended: that happens often, and nobody plans by it.
create trigger task_changes before update on task for each row
when (
  old.state is distinct from new.state or old.attempt is distinct from new.attempt
  or old.held_until is distinct from new.held_until or old.ranges is distinct from new.ranges
  or old.lane is distinct from new.lane or old.finished_at is distinct from new.finished_at
)
execute function note_change();

-- Whoever writes coverage holds the lock of its generation: this makes nobody wait.
create function note_coverage() returns trigger language plpgsql as $$
begin
  update generation set changed = pg_current_xact_id()
  where no in (select generation from written) and changed <> pg_current_xact_id();
  return null;
end
$$;
create trigger coverage_changes after insert on coverage referencing new table as written
for each statement execute function note_coverage();
