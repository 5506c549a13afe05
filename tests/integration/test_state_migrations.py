"""The tables: from empty, step by step, at once, and never behind anybody's back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from psycopg import sql

from penstock.errors import StateError
from penstock.state.database.connection import Database
from penstock.state.database.migrate import Migration, migrate, migrations
from penstock.state.store import State


@pytest.fixture
def database(dsn: str, schema: str) -> Database:
    return Database.connect(dsn, schema)


def test_an_empty_database_gets_every_migration_once(dsn: str, schema: str) -> None:
    with_names = [one.name for one in migrations()]
    state = State.open(dsn, schema, migrate=True)
    assert [row[0] for row in state.database.connection.execute("select name from migration order by 1")] == with_names
    assert migrate(state.database) == ()
    state.close()


def test_migrating_step_by_step_gives_the_tables_that_migrating_at_once_gives(dsn: str, schema: str) -> None:
    known = migrations()
    at_once = Database.connect(dsn, schema)
    migrate(at_once)
    whole = [row[1:] for row in _without_schema(at_once)]
    at_once.connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
    stepwise = Database.connect(dsn, schema)
    for step in range(1, len(known) + 1):
        assert migrate(stepwise, known[:step]) == (known[step - 1].name,)
    assert [row[1:] for row in _without_schema(stepwise)] == whole
    at_once.close()
    stepwise.close()


def _without_schema(database: Database) -> list[tuple[object, ...]]:
    return [tuple(str(value).replace(database.schema, "") for value in row) for row in _shape(database)]


def _shape(database: Database) -> list[tuple[object, ...]]:
    """Every column, constraint and index."""
    return database.connection.execute(
        """select 'column', table_name::text, column_name::text, data_type::text, is_nullable::text,
             column_default::text
           from information_schema.columns where table_schema = current_schema()
           union all
           select 'index', tablename::text, indexname::text, indexdef, '', '' from pg_indexes
           where schemaname = current_schema()
           union all
           select 'constraint', conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), '', ''
           from pg_constraint where connamespace = (select oid from pg_namespace where nspname = current_schema())
           order by 1, 2, 3, 4"""
    ).fetchall()


def test_what_a_sentence_said_of_a_source_becomes_columns(database: Database) -> None:
    known = migrations()
    migrate(database, tuple(one for one in known if one.name < "0010"))
    told = {
        "a": "watched through Spark (no 'x (y)' here); its change feed tells what changed",
        "b": "watched through Spark (why; so); without a change feed, so each new snapshot is a change of all of it",
        "c": None,
    }
    connection = database.connection
    for name, words in told.items():
        connection.execute(
            "insert into model (id, type, lineage, config, max_inflight, retries) "
            "values (%s, 'source', 'l', '{}', 1, 0)",
            [name],
        )
        connection.execute("insert into source (model, columns, watched) values (%s, '{}', %s)", [name, words])
    migrate(database)
    rows = connection.execute("select model, only_spark, change_feed from source order by 1").fetchall()
    assert rows == [("a", "no 'x (y)' here", True), ("b", "why; so", False), ("c", None, None)]
    database.close()


def test_an_edited_migration_is_refused(database: Database) -> None:
    migrate(database)
    first, *rest = migrations()
    with pytest.raises(StateError, match=r"0001_definitions.*not the one that was applied"):
        migrate(database, (Migration(first.name, first.text + "-- edited"), *rest))
    database.close()


def test_a_database_that_is_newer_than_the_code_is_refused(dsn: str, schema: str, database: Database) -> None:
    migrate(database, (*migrations(), Migration("9999_future", "create table future (id int)")))
    with pytest.raises(StateError, match=r"newer than this penstock.*9999_future") as refused:
        State.open(dsn, schema, migrate=True)
    assert refused.value.hint == "upgrade penstock"
    with pytest.raises(StateError, match="newer"):
        State.open(dsn, schema, migrate=False)
    database.close()


def test_a_database_that_lacks_tables_says_which_command_makes_them(dsn: str, schema: str) -> None:
    with pytest.raises(StateError, match="lacks 0001_definitions") as behind:
        State.open(dsn, schema, migrate=False)
    assert behind.value.hint == "run `penstock migrate`"


def test_a_failing_migration_leaves_nothing_behind(database: Database) -> None:
    broken = (Migration("0001_good", "create table good (id int)"), Migration("0002_bad", "create nonsense"))
    with pytest.raises(Exception, match="nonsense"):
        migrate(database, broken)
    assert not _shape(database)
    migrate(database)
    database.close()


def test_processes_that_migrate_at_once_apply_everything_once(dsn: str, schema: str) -> None:
    code = (
        "import sys; from penstock.state.store import State; "
        "sys.stdin.readline(); s = State.open(sys.argv[1], sys.argv[2], migrate=True); s.views.whole(); s.close()"
    )
    crowd = [
        subprocess.Popen([sys.executable, "-c", code, dsn, schema], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for one in crowd:
            assert one.stdin is not None
            one.stdin.write(b"go\n")
            one.stdin.flush()
        assert [(one.communicate()[1], one.returncode) for one in crowd] == [(b"", 0)] * 2
    finally:
        for one in crowd:
            one.kill()
            one.wait()


def test_a_server_that_cannot_be_reached_says_what_to_check(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot reach the state database") as gone:
        State.open(f"host={tmp_path} dbname=none", "penstock", migrate=True)
    assert gone.value.hint and "state:" in gone.value.hint


def test_a_connection_string_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(StateError, match="cannot be read") as unread:
        State.open("host=here secret-word", "penstock", migrate=True)
    assert "secret-word" not in str(unread.value)


def test_a_role_without_rights_is_told_so_and_one_with_a_schema_of_its_own_works(dsn: str, schema: str) -> None:
    owner = Database.connect(dsn, schema)
    owner.connection.execute(b"create role guest")
    weak = Database.connect(dsn, schema)
    weak.connection.execute(b"set role guest")
    with pytest.raises(StateError, match="refuses"):
        migrate(weak)
    owner.connection.execute(sql.SQL("create schema {} authorization guest").format(sql.Identifier(schema)))
    assert len(migrate(weak)) == len(migrations())
    owner.close()
    weak.close()


def test_a_connection_that_was_cut_is_a_state_error(dsn: str, schema: str) -> None:
    state = State.open(dsn, schema, migrate=True)
    other = Database.connect(dsn, schema)
    other.connection.execute("select pg_terminate_backend(%s)", (state.database.connection.info.backend_pid,))
    with pytest.raises(StateError, match="does not answer"):
        state.views.whole()
    assert state.views.whole().revision is None  # on a new connection
    state.close()
    other.close()
