-- name: lock_migrations
-- Before there are tables, the name of the schema is all that processes have in common.
select pg_advisory_xact_lock(hashtextextended('penstock migrations of ' || %(schema)s, 0));

-- name: create_migration_table
-- Numbers in the names keep the order.
create table if not exists migration (
  name text primary key,
  hash text not null,
  applied_at timestamptz not null default clock_timestamp()
);

-- name: patient_statements
-- A migration of a large table may take longer than any other statement should.
select set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true);

-- name: has_schema
-- `if not exists` would ask for the right to create schemas even when there is nothing to create.
select exists (select from pg_namespace where nspname = %(schema)s) as is_there;

-- name: has_migration_table
-- Asked without an error, so that it works inside a transaction.
select to_regclass('migration') is not null as is_there;

-- name: applied_migrations
-- In the order of their names, which is the order they were applied in.
select name, hash from migration order by name collate "C";

-- name: record_migration
-- The hash shows later whether an applied file was edited.
insert into migration (name, hash) values (%(name)s, %(hash)s);
