-- What schedulers and workers need that stay: slots, turns, holds, logs.

-- One row per lane that has a cadence of its own. Whoever moves next_at on may create the tasks of that slot.
create table schedule (
  model text not null references model,
  lane text not null,
  spec text not null,
  next_at timestamptz not null,
  last_slot timestamptz,
  primary key (model, lane)
);

-- When each lane of each model was last given to a worker, in claims: the one that waited longest is next.
create table turn (
  model text not null references model,
  lane text not null,
  served bigint not null default 0,
  primary key (model, lane)
);
create sequence claim_no;
insert into turn (model, lane) select distinct model, lane from task;
alter table task drop column priority;

-- A dead task keeps its scope from being planned until then, a cancelled one until somebody resumes it.
alter table task add column held_until timestamptz;
create index task_held on task (generation) where held_until is not null;
drop index task_claimable;
create index task_claimable on task (model, lane, run_after, id) where state in ('queued', 'retrying');
create index task_finished on task (finished_at) where finished_at is not null;
alter table task drop constraint task_split_from_fkey;
alter table task add foreign key (split_from) references task on delete set null;
create index task_split_from on task (split_from) where split_from is not null;
create index task_parent on task (parent) where parent is not null;

-- The last lines of what the attempt logged.
alter table attempt add column log_tail text;
alter table attempt drop constraint attempt_outcome_check;
alter table attempt add constraint attempt_outcome_check
  check (outcome in ('succeeded', 'failed', 'lost', 'released', 'superseded', 'cancelled'));
create index coverage_attempt on coverage (task, attempt);
create index coverage_frontier on coverage (frontier);
create index frontier_attempt on frontier (task, attempt);

-- Several processes share the work of looking: whoever moves this on looks.
alter table source add column looked_at timestamptz;
-- No log told its bounds: a worker is to ask Spark.
alter table source add column needs_spark boolean not null default false;
alter table source add column scan_claimed_at timestamptz;

-- info holds role, host, pid, globs, tags and slots; a stopping worker claims nothing more.
alter table worker add column stopping boolean not null default false;
-- The run of the server that its session lock belongs to: a server that was started since knows nothing of the lock.
alter table worker add column server timestamptz not null default pg_postmaster_start_time();
