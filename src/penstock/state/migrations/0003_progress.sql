-- What has been built, from which inputs, and what sources hold.

create table frontier (
  id bigint generated always as identity primary key,
  generation bigint not null references generation,
  snapshot bigint not null,
  inputs jsonb not null,
  data_timestamp timestamptz,
  task bigint not null,
  attempt integer not null,
  foreign key (task, attempt) references attempt (task, n)
);
create index frontier_generation on frontier (generation, snapshot);

-- Append-only and signed. Rows are written under the generation's lock, so ids are in the order of the changes.
--   cover: covered + range, stale - range;  stale: stale + (range in covered);  drop: both - range
create table coverage (
  id bigint generated always as identity primary key,
  generation bigint not null references generation,
  kind text not null check (kind in ('cover', 'stale', 'drop')),
  range int8range not null check (not isempty(range) and not lower_inf(range) and not upper_inf(range)),
  task bigint,
  attempt integer,
  frontier bigint references frontier,
  snapshot bigint,
  rows bigint,
  digest_rows numeric,
  digest_a numeric,
  digest_b numeric,
  at timestamptz not null default clock(),
  span numrange generated always as (
    numrange(lower(range) + generation * 100000000000000000000, upper(range) + generation * 100000000000000000000)
  ) stored,
  foreign key (task, attempt) references attempt (task, n),
  check (kind <> 'cover' or (task is not null and frontier is not null and snapshot is not null and rows is not null))
);
create index coverage_order on coverage (generation, id);
create index coverage_span on coverage using gist (span);

-- All rows of a generation up to `through`, summed up: the edges start, end, start, end, ... in order. An array, because
-- PostgreSQL reads and writes the text of a multirange of a million parts thirty times slower. Apart from the generation,
-- because that row is written by every publication and this one after a thousand of them.
create table folded (
  generation bigint primary key references generation,
  through bigint not null,
  covered bigint[] not null check (cardinality(covered) % 2 = 0),
  stale bigint[] not null check (cardinality(stale) % 2 = 0)
);

create table source (
  model text primary key references model,
  table_id text,
  snapshot bigint,
  schema_hash text,
  columns jsonb not null,
  min_pos bigint,
  end_pos bigint,
  bytes bigint,
  rows bigint,
  full_scan_at timestamptz,
  incremental_scan_at timestamptz,
  observed_at timestamptz,
  error text,
  check ((min_pos is null and end_pos is null) or min_pos < end_pos)
);
