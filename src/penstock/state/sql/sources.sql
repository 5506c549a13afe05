-- name: record_source
-- Compare and set: an observation that was derived from another state than the stored one is dropped, also when nothing
-- is stored any more. Without a snapshot the time decides; a clock that runs ahead is cut back, else it would keep
-- everybody else out.
insert into source as s (
  model, table_id, snapshot, schema_hash, columns, min_pos, end_pos, bytes, rows, full_scan_at, incremental_scan_at,
  observed_at, error
)
select
  %(model)s, %(table_id)s, %(snapshot)s, %(schema_hash)s, %(columns)s, %(min_pos)s, %(end_pos)s, %(bytes)s, %(rows)s,
  %(full_scan_at)s, %(incremental_scan_at)s, least(%(observed_at)s::timestamptz, clock()), %(error)s
where %(expected_snapshot)s::bigint is null or exists (select from source where model = %(model)s)
on conflict (model) do update set
  table_id = excluded.table_id, snapshot = excluded.snapshot, schema_hash = excluded.schema_hash,
  columns = excluded.columns, min_pos = excluded.min_pos, end_pos = excluded.end_pos, bytes = excluded.bytes,
  rows = excluded.rows, full_scan_at = excluded.full_scan_at, incremental_scan_at = excluded.incremental_scan_at,
  observed_at = excluded.observed_at, error = excluded.error
where s.snapshot is not distinct from %(expected_snapshot)s::bigint
  and (s.snapshot is not null or s.observed_at is null or excluded.observed_at >= s.observed_at);

-- name: record_source_error
-- A failed look never moves the bounds.
insert into source (model, columns, error) values (%(model)s, '{}', %(error)s)
on conflict (model) do update set error = excluded.error;
