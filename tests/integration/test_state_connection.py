"""Connections: lost ones are replaced, transactions never continue on another one, a stopped one ends by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest
from postgres_server import own_server

from penstock.errors import StateError
from penstock.state.database.connection import SETTINGS, Database
from penstock.state.database.migrate import check
from penstock.state.database.statements import statements
from penstock.state.database.wakeup import wake_cancelled
from penstock.state.store import State
from penstock.values.intervals import NOTHING, ranges

if TYPE_CHECKING:
    from conftest import Story


def backend(state: State) -> int:
    return state.database.connection.info.backend_pid


def cut(story: Story, victim: State) -> None:
    """Let the server drop the victim's connection; the victim does not know yet."""
    killer = story.connect()
    killer.database.connection.execute("select pg_terminate_backend(%s)", (backend(victim),))
    while killer.database.connection.execute(
        "select 1 from pg_stat_activity where pid = %s", (backend(victim),)
    ).fetchall():
        pass
    killer.close()


def lose(story: Story, victim: State) -> None:
    """As `cut`, and the victim has noticed."""
    cut(story, victim)
    with pytest.raises(StateError, match="does not answer"):
        victim.workers.alive()


def test_the_statement_that_notices_fails_and_the_next_one_is_answered(story: Story) -> None:
    before = backend(story.state)
    lose(story, story.state)
    assert story.state.workers.alive() == ()
    assert backend(story.state) != before


def test_a_new_connection_has_the_same_settings_and_reads_the_same_tables(story: Story) -> None:
    story.build((0, 10))
    shown = "select name, setting, unit from pg_settings where name = any(%s) or name = 'search_path' order by 1"
    before = story.execute(shown, list(SETTINGS))
    lose(story, story.state)
    assert story.covered() == ranges((0, 10))
    assert story.execute(shown, list(SETTINGS)) == before


@pytest.mark.parametrize(
    "act",
    [
        lambda story: story.enqueue(story.order((10, 20))),
        lambda story: story.state.views.whole(),
        lambda story: story.state.history.covers(1, ranges((0, 10))),
        lambda story: story.state.queue.claim("w"),
        lambda story: story.state.invalidations.invalidate("core.a", ranges((0, 1)), "", "me"),
        lambda story: check(story.state.database),
    ],
)
def test_whatever_begins_after_the_loss_works(story: Story, act: Callable[[Story], object]) -> None:
    lose(story, story.state)
    act(story)


def test_a_transaction_never_goes_on_with_another_connection(story: Story) -> None:
    database = story.state.database
    with pytest.raises(StateError), database.transaction():
        database.run("audit", actor="me", action="first", subject="", detail="{}")
        cut(story, story.state)
        with pytest.raises(StateError):
            database.run("audit", actor="me", action="second", subject="", detail="{}")
        with pytest.raises(StateError):
            database.run("audit", actor="me", action="third", subject="", detail="{}")
        with pytest.raises(StateError), database.transaction():
            database.run("audit", actor="me", action="fourth", subject="", detail="{}")
    assert story.state.workers.alive() == ()  # on a connection of its own
    assert story.execute("select action from audit where actor = 'me'") == []


def test_without_that_rule_half_a_transaction_would_be_kept(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above: a database that always gets itself a connection."""
    right = Database.ready

    def eager(self: Database) -> psycopg.Connection:
        blocks, self._open_blocks = self._open_blocks, 0
        try:
            return right(self)
        finally:
            self._open_blocks = blocks

    monkeypatch.setattr(Database, "ready", eager)
    database = story.state.database
    with pytest.raises(StateError), database.transaction():
        database.run("audit", actor="me", action="first", subject="", detail="{}")
        cut(story, story.state)
        with pytest.raises(StateError):
            database.run("audit", actor="me", action="second", subject="", detail="{}")
        database.run("audit", actor="me", action="third", subject="", detail="{}")
    assert story.execute("select action from audit where actor = 'me'") == [("third",)]


def test_a_publication_that_loses_its_connection_leaves_nothing_and_can_be_repeated(story: Story) -> None:
    """B-10: no success without a record."""
    lease = story.lease((0, 10))
    with pytest.raises(StateError), story.state.attempts.publishing(lease) as publication:
        cut(story, story.state)
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
    assert story.covered() == NOTHING
    story.publish(lease)
    assert story.covered() == ranges((0, 10))


def test_looking_is_one_moment_and_read_only_also_after_a_loss_in_the_middle(story: Story) -> None:
    database = story.state.database
    with pytest.raises(StateError), database.looking():
        cut(story, story.state)
        database.run("channel")
    with database.looking():
        [[level]] = story.execute("select current_setting('transaction_isolation')")
        [[read_only]] = story.execute("select current_setting('transaction_read_only')")
    assert (level, read_only) == ("repeatable read", "on")
    with database.transaction():
        [[level]] = story.execute("select current_setting('transaction_isolation')")
        [[read_only]] = story.execute("select current_setting('transaction_read_only')")
    assert (level, read_only) == ("read committed", "off")


def test_before_a_new_connection_the_caller_may_start_the_server(dsn: str, empty_schema: str, story: Story) -> None:
    asked: list[str] = []
    state = State.open(dsn, empty_schema, migrate=False, before=lambda: asked.append("start"))
    assert asked == []
    lose(story, state)
    assert asked == []
    state.workers.alive()
    state.workers.alive()
    assert asked == ["start"]
    state.close()


def test_a_server_that_cannot_be_started_is_tried_again_by_the_next_statement(
    dsn: str, empty_schema: str, story: Story
) -> None:
    answers = iter([StateError("not yet"), None])

    def start() -> None:
        if answer := next(answers):
            raise answer

    state = State.open(dsn, empty_schema, migrate=False, before=start)
    lose(story, state)
    with pytest.raises(StateError, match="not yet"):
        state.workers.alive()
    assert state.workers.alive() == ()
    state.close()


def test_a_state_that_was_closed_stays_closed(connect: Callable[[], State]) -> None:
    state = connect()
    state.close()
    with pytest.raises(StateError):
        state.workers.alive()


def test_a_server_that_crashed_and_is_back_is_used_again() -> None:
    with own_server() as server, ExitStack() as stack:

        def start() -> None:
            if not server.running:
                server.start()

        state = State.open(server.dsn, "penstock", migrate=True, before=start)
        stack.callback(state.close)
        for end in (server.stop, server.crash, server.kill):
            end()
            with pytest.raises(StateError, match="does not answer"):
                state.workers.alive()
            assert state.workers.alive() == ()
        server.stop()
        with pytest.raises(StateError):
            State.open(server.dsn, "penstock", migrate=False)


# wake-ups


def test_a_notification_says_what_kind_it_is(story: Story) -> None:
    waiter = story.connect()
    assert waiter.listener.wait(0) == ()
    assert waiter.listener.wait(0) == ()
    story.enqueue(story.order((0, 10)))
    assert set(waiter.listener.wait(30)) == {""}
    wake_cancelled(story.state.database)
    assert "cancel" in waiter.listener.wait(30)


def test_a_listener_listens_again_on_a_new_connection_and_says_that_it_missed_something(story: Story) -> None:
    waiter = story.connect()
    waiter.listener.wait(0)
    lose(story, waiter)
    story.enqueue(story.order((0, 10)))  # nobody listens
    began = time.monotonic()
    assert waiter.listener.wait(60) == ("",)
    assert time.monotonic() - began < 30
    heard: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: heard.append(waiter.listener.wait(60)))
    thread.start()
    wake_cancelled(story.state.database)
    thread.join(30)
    assert heard == [("cancel",)]


def test_a_listener_that_loses_its_connection_while_it_waits_says_so(story: Story) -> None:
    waiter = story.connect()
    waiter.listener.wait(0)
    failed: list[StateError] = []

    def wait() -> None:
        try:
            waiter.listener.wait(60)
        except StateError as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    cut(story, waiter)
    thread.join(30)
    assert len(failed) == 1
    assert waiter.listener.wait(60) == ("",)


def test_a_listener_that_only_remembers_that_it_listens_would_hear_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the two tests above."""
    waiter = story.connect()
    waiter.listener.wait(0)
    lose(story, waiter)
    monkeypatch.setattr(waiter.listener, "_listening", waiter.database.ready())
    wake_cancelled(story.state.database)
    assert waiter.listener.wait(0.2) == ()


# time limits


def test_statements_locks_and_open_transactions_have_time_limits(story: Story) -> None:
    wanted = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
    found = dict(story.execute("select name, current_setting(name) from unnest(%s::text[]) as name", wanted))
    assert found == {
        "statement_timeout": "2min",
        "lock_timeout": "30s",
        "idle_in_transaction_session_timeout": "1min",
    }


def test_a_worker_that_stops_inside_its_publication_is_ended_and_blocks_nobody(story: Story) -> None:
    lease = story.lease((0, 10))
    stopped = story.connect()
    stopped.database.connection.execute("set idle_in_transaction_session_timeout = '200ms'")
    with pytest.raises(StateError), stopped.attempts.publishing(lease) as publication:
        # another one waits for the lock; it gets it because the server ends the first one
        story.publish(lease)
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
    assert story.covered() == ranges((0, 10))
    assert len(story.state.history.covers(lease.generation, ranges((0, 10)))) == 1


def test_without_the_limit_it_would_block_the_others(story: Story) -> None:
    lease = story.lease((0, 10))
    stopped = story.connect()
    stopped.database.connection.execute("set idle_in_transaction_session_timeout = 0")
    story.execute("set lock_timeout = '500ms'")
    with stopped.attempts.publishing(lease), pytest.raises(Exception, match="busy"):
        story.publish(lease)
    assert story.covered() == NOTHING


def test_a_statement_that_takes_too_long_fails_and_the_connection_stays(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(statements(), "channel", "select pg_sleep(30)")
    story.execute("set statement_timeout = '100ms'")
    before = backend(story.state)
    with pytest.raises(StateError, match="does not answer"):
        story.state.database.run("channel")
    assert story.state.workers.alive() == ()
    assert backend(story.state) == before
