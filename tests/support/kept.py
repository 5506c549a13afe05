"""The tables of one schema, emptied or brought back for the next example of one test: much quicker than new ones."""

from __future__ import annotations

import psycopg

_EACH = """
do $$
declare name text; columns text;
begin
  set local session_replication_role = replica;  -- no foreign keys: the order does not matter
  for name in select tablename from pg_tables where schemaname = current_schema() and tablename <> 'migration' loop
    {act}
  end loop;
end $$
"""
_EMPTY = "execute format('delete from %I', name);"
_KEEP = "execute format('create temp table %I as select * from %I', 'kept ' || name, name);"
_BRING_BACK = (
    _EMPTY
    + """
    select string_agg(quote_ident(attname), ', ' order by attnum) into columns from pg_attribute
    where attrelid = quote_ident(name)::regclass and attnum > 0 and not attisdropped and attgenerated = '';
    execute format(
      'insert into %I (%s) overriding system value select %s from %I', name, columns, columns, 'kept ' || name);
"""
)


def empty(connection: psycopg.Connection) -> None:
    """Numbers go on from where they are: the session lock of a worker of an earlier example is nobody's."""
    connection.execute(_EACH.replace("{act}", _EMPTY).encode())


def keep(connection: psycopg.Connection) -> None:
    """Remember all rows, as long as this connection lives."""
    connection.execute(_EACH.replace("{act}", _KEEP).encode())


def bring_back(connection: psycopg.Connection) -> None:
    """Let the tables hold what was kept, and nothing else."""
    connection.execute(_EACH.replace("{act}", _BRING_BACK).encode())


def stop_clock(connection: psycopg.Connection, seconds: float) -> None:
    """Let the clock of this schema stand so many seconds after a fixed moment."""
    connection.execute(
        b"create or replace function clock() returns timestamptz language sql volatile as "
        b"$$ select timestamptz '2026-01-01 00:00:00+00' + interval '%d milliseconds' $$" % round(seconds * 1000)
    )
