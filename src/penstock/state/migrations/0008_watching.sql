-- How a source is watched where its log alone does not tell, in words; null: by its log, or by scans of another format.
alter table source add column watched text;

-- Rows that came or changed below what has expired: nothing is computed with them. The number is null when nobody can
-- say it; without a moment there were none.
alter table source add column ignored_rows bigint;
alter table source add column ignored_since timestamptz;
