-- What must be computed again, and the news that says so.

-- model: what changed. A null input_snapshot is ordered by the epoch of each generation instead.
create table invalidation (
  id bigint generated always as identity primary key,
  model text not null,
  ranges int8multirange not null,
  reason text not null,
  actor text not null,
  input_generation text,
  input_table_id text,
  input_snapshot bigint,
  idem_key text unique,
  created_at timestamptz not null default clock(),
  closed_at timestamptz
);

-- remaining: what has not been published from new enough inputs since.
create table invalidation_target (
  invalidation bigint not null references invalidation,
  generation bigint not null references generation,
  epoch bigint not null,
  ranges int8multirange not null,
  remaining int8multirange not null,
  primary key (invalidation, generation),
  check (remaining <@ ranges)
);
create index invalidation_target_open on invalidation_target (generation) where not isempty(remaining);

-- The outbox: written with the change it tells of, deleted with the marks it leads to.
create table event (
  no bigint generated always as identity primary key,
  id text not null unique,
  kind text not null check (kind in ('changed')),
  model text not null,
  generation text,
  table_id text,
  snapshot bigint,
  ranges int8multirange not null check (not isempty(ranges)),
  available_at timestamptz not null default clock(),
  attempts integer not null default 0,
  dead boolean not null default false,
  last_error text,
  created_at timestamptz not null default clock()
);
create index event_pending on event (available_at) where not dead;
