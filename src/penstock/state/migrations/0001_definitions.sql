-- What a project declares, and the physical builds of its models.

-- Every lease, schedule and time stamp reads the clock here, so that a simulation can replace it.
create function clock() returns timestamptz language sql volatile as 'select clock_timestamp()';

create table revision (
  hash text primary key,
  bundle bytea not null,
  manifest jsonb not null,
  state text not null check (state in ('active', 'superseded')),
  created_at timestamptz not null default clock()
);
create unique index revision_active on revision (state) where state = 'active';

create table model (
  id text primary key,
  type text not null check (type in ('source', 'interval', 'dynamic', 'full')),
  lineage text not null,
  axis text,
  position text,
  config jsonb not null,
  max_inflight integer not null check (max_inflight > 0),
  retries integer not null check (retries >= 0),
  desired text not null default 'running' check (desired in ('running', 'paused')),
  removed_at timestamptz
);

create table edge (
  child text not null references model,
  parent text not null,
  group_no integer not null,
  ordinal integer not null,
  before_pos bigint not null,
  after_pos bigint not null,
  optional boolean not null,
  primary key (child, group_no, ordinal)
);
create index edge_parent on edge (parent);

-- This row is what every change of a model's progress locks. It stays small: the folded ranges live beside it.
create table generation (
  no bigint generated always as identity primary key,
  id uuid not null unique,
  model text not null references model,
  revision text not null references revision,
  fingerprint text not null,
  lineage text not null,
  location text not null unique,
  state text not null check (state in ('building', 'ready', 'current', 'retired', 'purged')),
  epoch bigint not null default 0,
  accepted_snapshot bigint,
  -- every commit up to this one is ours, or was judged
  audited_snapshot bigint,
  data_timestamp timestamptz,
  created_at timestamptz not null default clock()
);
create unique index generation_current on generation (model) where state = 'current';
create unique index generation_building on generation (model) where state = 'building';
create index generation_model on generation (model);

create table audit (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock(),
  actor text not null,
  action text not null,
  subject text not null,
  detail jsonb not null default '{}'
);
