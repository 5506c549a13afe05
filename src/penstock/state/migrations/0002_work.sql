-- Durable work: tasks, their attempts, and who does them.

-- Scopes of different generations lie 1e20 apart, so that one index (core PostgreSQL, no extension) can compare them all.
create function shifted(generation bigint, ranges int8multirange) returns nummultirange
language sql immutable parallel safe as $$
  select coalesce(
    range_agg(numrange(lower(r) + generation * 100000000000000000000, upper(r) + generation * 100000000000000000000)),
    '{}'
  )
  from unnest(ranges) as r
$$;

create table task (
  id bigint generated always as identity primary key,
  uuid uuid not null unique default gen_random_uuid(),
  model text not null references model,
  generation bigint not null references generation,
  lane text not null check (lane in ('forward', 'backfill', 'repair', 'refresh', 'scheduled', 'scan', 'maintenance')),
  ranges int8multirange not null check (not isempty(ranges) and not lower_inf(ranges) and not upper_inf(ranges)),
  chunks int8range[] not null,
  choices text[] not null,
  reason text not null,
  priority integer not null,
  state text not null default 'queued'
    check (state in ('queued', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'superseded')),
  run_after timestamptz not null default clock(),
  attempt integer not null default 0,
  max_attempts integer not null check (max_attempts > 0),
  lease_token uuid,
  lease_expires_at timestamptz,
  worker text,
  parent bigint references task,
  split_from bigint references task,
  created_at timestamptz not null default clock(),
  finished_at timestamptz,
  claim_range nummultirange generated always as (shifted(generation, ranges)) stored,
  check ((state = 'running') = (lease_token is not null)),
  check ((state = 'running') = (lease_expires_at is not null)),
  check ((state in ('queued', 'running', 'retrying')) = (finished_at is null)),
  constraint active_scopes_never_overlap exclude using gist (claim_range with &&)
    where (state in ('queued', 'running', 'retrying') and parent is null)
);
create index task_claimable on task (run_after) where state in ('queued', 'retrying');
create index task_running on task (model) where state = 'running';
create index task_active on task (generation) where state in ('queued', 'running', 'retrying');
create index task_dead on task (generation) where state = 'dead';
create index task_model on task (model, id);

create table attempt (
  task bigint not null references task,
  n integer not null,
  worker text not null,
  token uuid not null,
  basis_epoch bigint,
  strategy text,
  inputs jsonb,
  staging text,
  base_snapshot bigint,
  intent_at timestamptz,
  snapshot bigint,
  outcome text check (outcome in ('succeeded', 'failed', 'lost', 'released', 'superseded')),
  followed_by text check (followed_by in ('retrying', 'dead', 'split')),
  error_class text check (error_class in ('user', 'engine', 'lost', 'conflict')),
  error text,
  warnings jsonb not null default '[]',
  metrics jsonb not null default '{}',
  started_at timestamptz not null default clock(),
  ended_at timestamptz,
  primary key (task, n),
  check ((outcome is null) = (ended_at is null))
);
create unique index attempt_succeeds_once on attempt (task) where outcome = 'succeeded';

-- A live worker holds the session lock (oid of this table, no); the database drops it with the worker's connection.
create table worker (
  id text primary key,
  no bigint generated always as identity unique,
  info jsonb not null,
  since timestamptz not null default clock(),
  heartbeat_at timestamptz not null default clock()
);
