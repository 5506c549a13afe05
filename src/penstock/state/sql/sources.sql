-- name: record_source
-- Compare and set: an observation that was derived from another state than the stored one is dropped, also when nothing
-- is stored any more. Without a snapshot the time decides; a clock that runs ahead is cut back, else it would keep
-- everybody else out.
insert into source as s (
  model, table_id, snapshot, schema_hash, columns, min_pos, end_pos, bytes, rows, full_scan_at, incremental_scan_at,
  observed_at, error, expired_pos, only_spark, change_feed, ignored_rows, ignored_since
)
select
  %(model)s, %(table_id)s, %(snapshot)s, %(schema_hash)s, %(columns)s, %(min_pos)s, %(end_pos)s, %(bytes)s, %(rows)s,
  %(full_scan_at)s, %(incremental_scan_at)s, least(%(observed_at)s::timestamptz, clock()), %(error)s,
  %(expired_pos)s, %(only_spark)s, %(change_feed)s, %(ignored_rows)s, %(ignored_since)s
where %(expected_snapshot)s::bigint is null or exists (select from source where model = %(model)s)
on conflict (model) do update set
  table_id = excluded.table_id, snapshot = excluded.snapshot, schema_hash = excluded.schema_hash,
  columns = excluded.columns, min_pos = excluded.min_pos, end_pos = excluded.end_pos, bytes = excluded.bytes,
  rows = excluded.rows, full_scan_at = excluded.full_scan_at, incremental_scan_at = excluded.incremental_scan_at,
  observed_at = excluded.observed_at, error = excluded.error, expired_pos = excluded.expired_pos,
  only_spark = excluded.only_spark, change_feed = excluded.change_feed,
  ignored_rows = excluded.ignored_rows, ignored_since = excluded.ignored_since,
  needs_spark = false, scan_claimed_at = null
where s.snapshot is not distinct from %(expected_snapshot)s::bigint
  and (%(expected_table)s::text is null or s.table_id is not distinct from %(expected_table)s::text)
  and (s.snapshot is not null or s.observed_at is null or excluded.observed_at >= s.observed_at);

-- name: claim_looks
-- Compare and set: of all who ask at once, the one whose row comes first looks; whoever waited for it finds it done. Rows
-- that are not due are not even locked, and all take the others in one order.
insert into source as s (model, columns, looked_at)
select m.id, '{}', clock()
from jsonb_each_text(%(every_seconds)s) as wanted (model, seconds) join model m on m.id = wanted.model
where not exists (
  select from source known
  where known.model = m.id and known.looked_at > clock() - make_interval(secs => wanted.seconds::double precision)
)
order by m.id
on conflict (model) do update set looked_at = excluded.looked_at
where s.looked_at is null
  or s.looked_at <= excluded.looked_at
    - make_interval(secs => (%(every_seconds)s::jsonb ->> s.model)::double precision)
returning s.model;

-- name: note_looks
-- How fresh a dynamic table is follows from it.
update source set looked_at = clock() where model = any (%(models)s) and error is null;

-- name: record_source_error
-- A failed look never moves the bounds.
insert into source (model, columns, error) values (%(model)s, '{}', %(error)s)
on conflict (model) do update set error = excluded.error, needs_spark = false, scan_claimed_at = null;

-- name: ask_scan
-- A scheduler has no Spark: some worker takes it from here.
update source set needs_spark = true where model = any (%(models)s) and not needs_spark;

-- name: claim_scans
-- Of all workers one scans, unless it takes so long that it may be gone; two scans of one source only cost time.
update source set scan_claimed_at = clock()
where model = any (%(models)s) and needs_spark
  and (scan_claimed_at is null or scan_claimed_at < clock() - make_interval(secs => %(seconds)s))
returning model;
