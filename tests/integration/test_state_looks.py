"""Looking at sources: of all who could, one does, as often as is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from penstock.state.database.statements import statements
from penstock.state.store import State
from penstock.values.records import Definition, SourceRecord

if TYPE_CHECKING:
    from conftest import Story

NAMES = [f"raw.s{i:02}" for i in range(40)]


@pytest.fixture
def sources(story: Story) -> Story:
    made = [Definition(name, "source", name, "second", "ts", {}) for name in NAMES]
    story.state.projects.apply("r2", b"", {}, [*story.definitions(), *made])
    return story


def test_a_source_that_was_never_seen_is_due_and_then_not_before_its_time(story: Story) -> None:
    state = story.state
    assert state.sources.claim_looks({"raw.events": 10}) == {"raw.events"}
    assert state.sources.claim_looks({"raw.events": 10}) == frozenset()
    story.advance(9)
    assert state.sources.claim_looks({"raw.events": 10}) == frozenset()
    story.advance(11)
    assert state.sources.claim_looks({"raw.events": 10}) == {"raw.events"}
    assert state.sources.claim_looks({"raw.events": 10}) == frozenset()


def test_every_source_has_a_period_of_its_own(sources: Story) -> None:
    slow, quick = NAMES[:2]
    state = sources.state
    assert state.sources.claim_looks({slow: 300, quick: 0.5}) == {slow, quick}
    sources.advance(1)
    assert state.sources.claim_looks({slow: 300, quick: 0.5}) == {quick}
    sources.advance(400)
    assert state.sources.claim_looks({slow: 300, quick: 0.5}) == {slow, quick}


def test_nothing_to_look_at_and_unknown_names_are_no_error(story: Story) -> None:
    assert story.state.sources.claim_looks({}) == frozenset()
    assert story.state.sources.claim_looks({"raw.nobody": 1}) == frozenset()


def seen(snapshot: int) -> SourceRecord:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return SourceRecord("raw.events", "t", snapshot, None, {"ts": "timestamp"}, 0, 10, 1, 1, None, None, at, None)


def test_a_claimed_look_changes_nothing_about_what_is_kept_of_the_source(story: Story) -> None:
    state = story.state
    state.sources.claim_looks({"raw.events": 10})
    empty = state.views.whole().sources["raw.events"]
    assert (empty.snapshot, empty.observed_at, empty.min_pos, empty.error) == (None, None, None, None)
    assert not state.sources.record(seen(1), 5)
    assert state.sources.record(seen(1), None)
    story.advance(11)
    assert state.sources.claim_looks({"raw.events": 10}) == {"raw.events"}
    kept = state.views.whole().sources["raw.events"]
    assert kept.looked_at is not None
    assert replace(kept, looked_at=None) == seen(1)
    assert state.sources.record(seen(2), 1)


def test_a_look_is_remembered_when_it_fails(story: Story) -> None:
    story.state.sources.claim_looks({"raw.events": 10})
    story.state.sources.record_error("raw.events", "gone")
    assert story.state.sources.claim_looks({"raw.events": 10}) == frozenset()
    story.advance(11)
    assert story.state.sources.claim_looks({"raw.events": 10}) == {"raw.events"}


def test_many_who_ask_at_once_share_the_sources_without_overlap(sources: Story) -> None:
    states = [sources.connect() for _ in range(2)]
    for _ in range(10):
        sources.execute("update source set looked_at = null")
        together = threading.Barrier(2)

        def ask(state: State, together: threading.Barrier = together) -> frozenset[str]:
            together.wait()
            return state.sources.claim_looks(dict.fromkeys(NAMES, 60))

        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(ask, states)
        assert not one & two
        assert one | two == set(NAMES)


def claimed_while_another_is_about_to(story: Story, connect: Callable[[], State]) -> tuple[frozenset[str], ...]:
    """One claims and has not committed yet; another asks, and waits for it."""
    first, second = story.state, connect()
    second.database.run("channel")
    pid = second.database.connection.info.backend_pid
    with ThreadPoolExecutor(1) as pool:
        with first.database.transaction():
            one = first.sources.claim_looks(dict.fromkeys(NAMES, 60))
            asked = pool.submit(second.sources.claim_looks, dict.fromkeys(NAMES, 60))
            while not story.execute("select 1 from pg_locks where pid = %s and not granted", pid):
                pass
        two = asked.result(30)
    return one, two


@pytest.mark.parametrize("known", [True, False])
def test_whoever_waits_for_another_finds_it_done(sources: Story, connect: Callable[[], State], known: bool) -> None:
    if known:
        sources.state.sources.claim_looks(dict.fromkeys(NAMES, 60))
        sources.execute("update source set looked_at = null")
    assert claimed_while_another_is_about_to(sources, connect) == (frozenset(NAMES), frozenset())


@pytest.mark.parametrize("known", [True, False])
def test_without_comparing_again_both_would_look(
    sources: Story, connect: Callable[[], State], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    whole = statements()["claim_looks"]
    careless = whole.replace("where s.looked_at is null", "where true or s.looked_at is null")
    assert careless != whole
    monkeypatch.setitem(statements(), "claim_looks", careless)
    if known:
        sources.state.sources.claim_looks(dict.fromkeys(NAMES, 60))
        sources.execute("update source set looked_at = null")
    one, two = claimed_while_another_is_about_to(sources, connect)
    assert one & two


def test_a_slow_look_at_the_table_that_was_replaced_is_dropped(story: Story) -> None:
    state = story.state
    assert state.sources.record(seen(5), None)
    assert state.sources.record(replace(seen(5), table_id="another"), 5, expected_table=seen(5).table_id)
    assert not state.sources.record(seen(6), 5, expected_table=seen(5).table_id)
    assert state.sources.record(replace(seen(6), table_id="another"), 5, expected_table="another")
