"""Database roles: the owner does everything, a reader may ask everything and change nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.errors import StateError
from penstock.planner.change.pins import InputChange
from penstock.state.database.connection import Database
from penstock.state.database.migrate import check, migrate
from penstock.state.database.roles import grant_reader
from penstock.state.database.statements import statements
from penstock.state.pruning import prune
from penstock.state.store import State
from penstock.values.intervals import EVERYTHING, ranges
from penstock.values.records import SourceRecord
from penstock.values.tasks import Cost, Lease

if TYPE_CHECKING:
    from conftest import Story

_NUMBERS = itertools.count(1)
SEEN = SourceRecord("raw.events", "t", 1, None, {}, 0, 10, 1, 1, None, None, datetime(2026, 1, 1, tzinfo=UTC), None)
LIFE = {"close", "open", "migrated", "server_version"}
FUNCTIONS = {"check", "migrate", "grant_reader", "prune"}
"""What is asked of the database alone."""


def reads(state: State, lease: Lease, story: Story) -> dict[str, Callable[[], object]]:
    """Every method that only asks, as it is called."""
    return {
        "check": lambda: check(state.database),
        "migrate": lambda: migrate(state.database),  # there is nothing to do
        "projects.changes": lambda: state.projects.changes(story.definitions(a="new")),
        "projects.active_revision": state.projects.active_revision,
        "projects.bundle": lambda: state.projects.bundle("r1"),
        "views.whole": lambda: (state.views.whole().working, state.views.whole(datetime(2026, 1, 1, tzinfo=UTC)).work),
        "views.lineage": lambda: state.views.lineage("core.b").working,
        "history.covers": lambda: state.history.covers(lease.generation, EVERYTHING),
        "history.newest_inputs": lambda: state.history.newest_inputs([lease.generation]),
        "reopenings.since": lambda: state.reopenings.since(lease.generation, EVERYTHING),
        "events.last_change": lambda: state.events.last_change("raw.events", EVERYTHING),
        "reopenings.newest": lambda: state.reopenings.newest(lease.generation, EVERYTHING),
        "history.tasks": lambda: state.history.tasks(None, failed=False, history=True),
        "history.count_tasks": lambda: state.history.count_tasks(None, failed=False, history=True),
        "history.attempts": lambda: state.history.attempts([lease.task]),
        "workers.alive": state.workers.alive,
        "queue.unheard_claim": lambda: state.queue.unheard_claim("w", [lease.task]),
        "attempts.completed": lambda: state.attempts.completed(lease),
        "generations.owned": lambda: state.generations.owned([lease.uuid]),
        "listener.wait": lambda: state.listener.wait(0),
    }


def writes(state: State, lease: Lease, story: Story) -> dict[str, Callable[[], object]]:
    """Every method that changes something, as it is called."""
    scope, no = ranges((0, 10)), lease.generation

    def publish() -> None:
        with state.attempts.publishing(lease):
            raise AssertionError("a reader publishes")

    def reset() -> None:
        with state.generations.resetting(no):
            raise AssertionError("a reader resets")

    def hold() -> None:
        with state.generations.holding(no):
            raise AssertionError("a reader keeps others from changing something")

    return {
        "grant_reader": lambda: grant_reader(state.database, "nobody at all"),
        "prune": lambda: prune(state.database, 0),
        "projects.apply": lambda: state.projects.apply("r2", b"", {}, story.definitions(a="new")),
        "projects.cutover": lambda: state.projects.cutover(["core.a"]),
        "sources.record": lambda: state.sources.record(SEEN, None),
        "sources.record_error": lambda: state.sources.record_error("raw.events", "gone"),
        "sources.claim_looks": lambda: state.sources.claim_looks({"raw.events": 0}),
        "sources.ask_scan": lambda: state.sources.ask_scan(["raw.events"]),
        "sources.claim_scans": lambda: state.sources.claim_scans(["raw.events"]),
        "queue.enqueue": lambda: state.queue.enqueue([story.order((50, 60))], {"core.a": no}),
        "queue.claim": lambda: state.queue.claim("reader"),
        "queue.release": lambda: state.queue.release(lease, ""),
        "queue.hand_back": lambda: state.queue.hand_back(lease, ""),
        "queue.fail": lambda: state.queue.fail(lease, "engine", "", Cost()),
        "queue.reap": state.queue.reap,
        "workers.register": lambda: state.workers.register("reader", {}),
        "workers.say_stopping": lambda: state.workers.say_stopping("w"),
        "workers.heartbeat": lambda: state.workers.heartbeat([lease]),
        "history.keep_log": lambda: state.history.keep_log(lease, ""),
        "attempts.intend": lambda: state.attempts.intend(lease, {}, None, ""),
        "attempts.publishing": publish,
        "generations.accept_snapshot": lambda: state.generations.accept_snapshot(no, 1, 2),
        "generations.audited": lambda: state.generations.audited(story.generation(), 1),
        "generations.forget_table": lambda: state.generations.forget_table(no, 1),
        "invalidations.invalidate": lambda: state.invalidations.invalidate("core.a", scope, "", "reader"),
        "invalidations.invalidate_all": lambda: state.invalidations.invalidate_all({"core.a": scope}, "", "reader"),
        "events.ask_consumers": lambda: state.events.ask_consumers(
            InputChange("raw.events", None, "t", 1), scope, {"core.a": scope}, "", "reader"
        ),
        "generations.resetting": reset,
        "generations.holding": hold,
        "events.handle": lambda: state.events.handle(lambda _model, _input, scope: scope),
        "control.pause": lambda: state.control.pause("core.a", "reader"),
        "control.resume": lambda: state.control.resume("core.a", "reader"),
        "control.clear_holds": lambda: state.control.clear_holds("core.a"),
        "control.go_on": lambda: state.control.go_on(no),
        "control.go_on_all": lambda: state.control.go_on_all(["core.a"]),
        "control.cancel_model": lambda: state.control.cancel_model("core.a", "reader"),
        "control.cancel_task": lambda: state.control.cancel_task(lease.task, "reader"),
        "control.resume_task": lambda: state.control.resume_task(lease.task, "reader"),
    }


@pytest.fixture
def role(dsn: str) -> Iterator[str]:
    """A role with a name that must be quoted, as an administrator makes it."""
    name = f'Reader\'s "own" {os.getpid()}.{next(_NUMBERS)}; %s'
    named = {"role": sql.Identifier(name), "word": sql.Literal("a word")}
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {role} login password {word}").format(**named))
        yield name
        admin.execute(sql.SQL("drop owned by {role}").format(**named))
        admin.execute(sql.SQL("drop role {role}").format(**named))


@pytest.fixture
def reader_dsn(dsn: str, role: str) -> str:
    return make_conninfo(dsn, user=role, password="a word")


@pytest.fixture
def reader(story: Story, empty_schema: str, role: str, reader_dsn: str) -> Iterator[State]:
    grant_reader(story.state.database, role)
    state = State.open(reader_dsn, empty_schema, migrate=False)
    yield state
    state.close()


@pytest.fixture
def lease(story: Story) -> Lease:
    """Some work done, some under way, some events, a worker, and a model that is suspended."""
    story.connect().workers.register("w", {"role": "worker"})
    done = story.build((0, 10))
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "wrong", "me")
    story.enqueue(story.order((20, 30)))
    story.lease((10, 20), model="core.b")
    story.execute(
        "insert into suspension (generation, active, error, alike, inputs, times) values (%s, true, '', '', '{}', 1)",
        done.generation,
    )
    return done


def test_a_reader_sees_the_same_as_the_owner(story: Story, lease: Lease, reader: State) -> None:
    asked, told = reads(reader, lease, story), reads(story.state, lease, story)
    assert {name: ask() for name, ask in asked.items()} == {name: ask() for name, ask in told.items()}
    with psycopg.connect(reader.database._dsn) as connection:
        [[who]] = connection.execute("select current_user")
    assert who != story.state.database.connection.info.user


def test_a_reader_is_refused_whatever_changes_something(story: Story, lease: Lease, reader: State) -> None:
    before = contents(story)
    for name, act in writes(reader, lease, story).items():
        with pytest.raises(StateError) as refused:
            act()
        assert name == "grant_reader" or "refuses" in str(refused.value), name
    assert contents(story) == before


def test_every_method_is_in_one_of_the_two_lists(story: Story, lease: Lease) -> None:
    known = [*reads(story.state, lease, story), *writes(story.state, lease, story)]
    parts = {part: value for part, value in vars(story.state).items() if part != "database"}
    methods = {f"{part}.{name}" for part, value in parts.items() for name in public(value)}
    assert sorted(known) == sorted(FUNCTIONS | methods), "say in this file whether it reads or writes"


def test_the_state_itself_only_opens_and_closes() -> None:
    assert public(State) == LIFE, "whatever else is asked stands in one of its parts"


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def tables(story: Story) -> list[str]:
    found = story.execute("select tablename::text from pg_tables where schemaname = current_schema() order by 1")
    return [str(name) for (name,) in found]


def contents(story: Story) -> dict[str, list[tuple[object, ...]]]:
    return {name: story.execute(f'select t::text from "{name}" t order by 1') for name in tables(story)}


@pytest.mark.parametrize(
    "form",
    [
        "insert into {table} default values",
        "update {table} set {column} = default",
        "delete from {table}",
        "truncate {table}",
        "select from {table} for update",
        "drop table {table}",
        "alter table {table} add column more text",
        "create index on {table} ({column})",
    ],
)
def test_the_database_itself_refuses_every_change_of_every_table(story: Story, reader: State, form: str) -> None:
    first = "select attname::text from pg_attribute where attrelid = %s::regclass and attnum = 1"
    assert len(tables(story)) > 12
    for name in tables(story):
        [[column]] = story.execute(first, f'"{name}"')
        named = {"table": sql.Identifier(name), "column": sql.Identifier(str(column))}
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.database.connection.execute(sql.SQL(form).format(**named))


@pytest.mark.parametrize(
    "text",
    [
        "create table mine (a int)",
        "create or replace function clock() returns timestamptz language sql as 'select null::timestamptz'",
        "select nextval('claim_no')",
        "select setval('claim_no', 1)",
    ],
)
def test_a_reader_makes_nothing_of_its_own_in_the_schema(reader: State, text: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.database.connection.execute(text.encode())


def test_without_the_grant_the_role_sees_nothing(story: Story, empty_schema: str, reader_dsn: str) -> None:
    """The control of the tests above: it is the grant that lets the reader in."""
    with pytest.raises(StateError):
        State.open(reader_dsn, empty_schema, migrate=False)
    with psycopg.connect(reader_dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(sql.SQL("select from {}.task").format(sql.Identifier(empty_schema)))


def test_a_grant_that_gave_more_would_be_noticed(
    story: Story, role: str, reader_dsn: str, empty_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the lists: with more rights a reader pauses a model."""
    generous = statements()["reader_grants"].replace("grant select on all", "grant all on all")
    monkeypatch.setitem(statements(), "reader_grants", generous)
    grant_reader(story.state.database, role)
    reader = State.open(reader_dsn, empty_schema, migrate=False)
    reader.control.pause("core.a", "reader")
    assert story.state.views.whole().paused == {"core.a"}
    reader.close()


def test_tables_of_later_migrations_are_readable_too(story: Story, reader: State) -> None:
    story.execute("create table later (a int)")
    story.execute("create function later() returns int language sql as 'select 1'")
    story.execute("revoke execute on function later() from public")
    try:
        assert reader.database.connection.execute("select a, later() from later").fetchall() == []
    finally:
        story.execute("drop table later")
        story.execute("drop function later()")


def test_granting_twice_is_once(story: Story, reader: State, role: str) -> None:
    grant_reader(story.state.database, role)
    assert reader.views.whole().working == story.state.views.whole().working


def test_an_unknown_role_is_named(story: Story) -> None:
    with pytest.raises(StateError, match="no role named 'nobody \"at\" all'"):
        grant_reader(story.state.database, 'nobody "at" all')


def test_a_reader_cannot_let_others_in(story: Story, reader: State, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("create role friend")
        try:
            with pytest.raises(StateError):
                grant_reader(reader.database, "friend")
        finally:
            admin.execute("drop owned by friend")
            admin.execute("drop role friend")


def test_a_reader_that_calls_itself_read_only_is_refused_in_the_same_words(
    story: Story, lease: Lease, dsn: str, empty_schema: str
) -> None:
    """A hot standby speaks like this too."""
    database = Database.connect(make_conninfo(dsn, options="-c default_transaction_read_only=on"), empty_schema)
    state = State(database)
    assert state.views.whole().working == story.state.views.whole().working
    with pytest.raises(StateError, match="refuses"):
        state.control.pause("core.a", "me")
    state.close()
