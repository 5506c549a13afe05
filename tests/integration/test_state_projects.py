"""Revisions: what applying changes, what it keeps, and when a rebuilt table takes over."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.errors import LeaseLostError, StateError
from penstock.values.intervals import NOTHING, ranges

if TYPE_CHECKING:
    from conftest import Story


def kinds(story: Story, **fingerprints: str) -> dict[str, str]:
    return {one.model: one.change for one in story.state.projects.changes(story.definitions(**fingerprints))}


def test_a_first_revision_is_all_new_and_starts_empty(story: Story) -> None:
    view = story.state.views.whole()
    assert view.revision == "r1"
    assert set(view.working) == {"core.a", "core.b"}
    assert view.working["core.a"].state == "current"
    assert view.working["core.a"].location == f"core/a/{view.working['core.a'].id}"
    assert view.working["core.a"].covered == NOTHING
    assert story.state.projects.bundle("r1") == b"bundle"


def test_looking_at_changes_writes_nothing(story: Story) -> None:
    before = story.state.views.whole().working
    assert kinds(story, a="other") == {"raw.events": "unchanged", "core.a": "rebuild", "core.b": "rebuild"}
    assert story.state.views.whole().working == before


def test_the_same_revision_again_is_nothing(story: Story) -> None:
    before = story.state.views.whole().working
    changes = story.state.projects.apply("r1", b"bundle", {}, story.definitions())
    assert {one.change for one in changes} == {"unchanged"}
    assert story.state.views.whole().working == before


def test_the_same_revision_that_means_something_else_now_is_applied(story: Story) -> None:
    """A newer penstock may read other definitions out of the same files."""
    changes = story.state.projects.apply("r1", b"bundle", {}, story.definitions(a="new"))
    assert [one.change for one in changes] == ["unchanged", "rebuild", "rebuild"]
    assert story.generation().state == "building"


def test_a_changed_query_is_built_aside_while_the_old_table_serves(story: Story) -> None:
    story.build((0, 10))
    old = story.generation()
    changes = story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    assert {one.model: one.reason for one in changes} == {
        "raw.events": "same definition",
        "core.a": "its definition changed",
        "core.b": "it reads core.a, which is rebuilt",
    }
    view = story.state.views.whole()
    assert view.current["core.a"] == old
    assert (view.working["core.a"].state, view.working["core.a"].covered) == ("building", NOTHING)
    assert view.working["core.b"].state == "building"


def test_the_reason_of_a_far_descendant_names_the_model_that_changed(story: Story) -> None:
    reasons = {one.model: one.reason for one in story.state.projects.changes(story.definitions(events="moved"))}
    assert reasons["core.a"] == reasons["core.b"] == "it reads raw.events, which is rebuilt"


def test_a_second_change_replaces_the_unfinished_rebuild_and_its_work(story: Story) -> None:
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    lease = story.lease((0, 10))
    first = story.generation()
    story.state.projects.apply("r3", b"", {}, story.definitions(a="newer"))
    assert story.generation().no != first.no
    assert [row[0] for row in story.execute("select state from generation where no = %s", first.no)] == ["retired"]
    assert story.state.history.attempts([lease.task])[lease.task][0].outcome == "superseded"
    with pytest.raises(LeaseLostError):
        story.record(lease, story.commit(lease, 0))


def test_work_on_the_old_table_ends_when_a_new_one_is_built(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    assert story.state.workers.heartbeat([lease]) == (lease,)
    with pytest.raises(LeaseLostError):
        story.state.attempts.intend(lease, {}, None, "")


def test_going_back_to_the_old_query_keeps_the_old_table(story: Story) -> None:
    story.build((0, 10))
    old = story.generation()
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    changes = story.state.projects.apply("r1", b"", {}, story.definitions())
    assert {one.change for one in changes} == {"unchanged"}
    assert story.generation() == old
    assert story.state.views.whole().revision == "r1"


def test_a_removed_model_loses_its_work_and_keeps_its_table(story: Story) -> None:
    story.build((0, 10))
    kept = story.generation()
    lease = story.lease((10, 20))
    source, a, b = story.definitions()
    changes = story.state.projects.apply("r2", b"", {}, (source, replace(b, edges=())))
    assert {one.model: one.change for one in changes}["core.a"] == "removed"
    assert "core.a" not in story.state.views.whole().working
    assert story.state.workers.heartbeat([lease]) == (lease,)
    assert story.enqueue(story.order((20, 30))) == 0
    changes = story.state.projects.apply("r3", b"", {}, (source, a, b))
    assert {one.model: one.reason for one in changes}["core.a"] == "it is back as it was"
    assert story.generation() == kept


def test_a_removed_model_that_comes_back_different_is_rebuilt(story: Story) -> None:
    source, a, _ = story.definitions()
    story.state.projects.apply("r2", b"", {}, (source,))
    changes = story.state.projects.apply("r3", b"", {}, (source, replace(a, fingerprint="other")))
    assert [one.change for one in changes] == ["unchanged", "rebuild"]


def test_what_changed_above_a_removed_model_marks_the_table_it_keeps(story: Story) -> None:
    story.build((0, 10), snapshot=1)
    story.state.events.handle(lambda _, __, changed: changed)
    story.build((0, 10), model="core.b", inputs=1)
    source, a, b = story.definitions()
    story.state.projects.apply("r2", b"", {}, (source, a))
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    story.build((0, 10), snapshot=2)

    def not_asked(*_: object) -> object:
        raise AssertionError("the project does not know a removed model")

    story.state.events.handle(not_asked)  # type: ignore[arg-type]
    story.state.projects.apply("r3", b"", {}, (source, a, b))
    assert story.stale("core.b") == ranges((0, 10))


def test_cutover_takes_several_models_over_in_one_transaction_or_none(story: Story) -> None:
    assert story.state.projects.cutover(["core.a"]) == ()
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    new = {name: one.no for name, one in story.state.views.whole().working.items()}
    assert story.state.projects.cutover(["core.a", "raw.events"]) == ()
    assert story.state.views.whole().current["core.a"].no != new["core.a"]
    assert story.state.projects.cutover(["core.b", "core.a"]) == ("core.a", "core.b")
    view = story.state.views.whole()
    assert {name: one.no for name, one in view.current.items()} == new
    assert view.working == view.current
    assert [row[0] for row in story.execute("select count(*) from generation where state = 'retired'")] == [2]


def test_a_build_that_another_revision_began_meanwhile_does_not_take_over(story: Story) -> None:
    """Whoever found the first build complete must not serve the second one, which is empty."""
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    complete = [one.no for one in story.state.views.whole().working.values()]
    story.state.projects.apply("r3", b"", {}, story.definitions(a="newer"))
    assert story.state.projects.cutover(["core.a", "core.b"], complete) == ()
    assert story.state.projects.cutover(["core.a", "core.b"]) == ("core.a", "core.b")  # control: by their names alone


def test_two_processes_that_apply_at_once_make_one_generation(story: Story) -> None:
    states = [story.connect(), story.connect()]
    threads = [
        threading.Thread(target=one.projects.apply, args=("r2", b"", {}, story.definitions(a="new"))) for one in states
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert story.execute("select count(*) from generation where model = 'core.a'") == [(2,)]


def test_an_unknown_revision_says_how_to_get_one(story: Story) -> None:
    with pytest.raises(StateError, match="no revision 'gone'"):
        story.state.projects.bundle("gone")
