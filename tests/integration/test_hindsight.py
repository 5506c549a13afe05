"""The past changes: is exactly that computed again which the changed rows reach, hop by hop, and is it right then?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deployment import Deployment
from fuzzing import effort
from hindsight import Happening, Hindsight, Kind, beginning
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from penstock.engine.observe import changes
from penstock.planner.readiness import lanes
from penstock.state.progress.publication import Publication
from penstock.values.intervals import IntervalSet
from penstock.values.tasks import Commit

Story = list[list[Happening]]
_NUMBERS = itertools.count()
KINDS: tuple[Kind, ...] = ("fresh", "late", "early", "update", "delete", "expire", "cut", "empty", "rewrite", "replace",
                           "restore", "compact", "merge", "spare", "notes", "rerun", "invalidate")  # fmt: skip
HAPPENING = st.tuples(st.sampled_from(KINDS), st.integers(0, 110), st.integers(1, 30), st.integers(0, 30))
STORIES = st.lists(st.lists(HAPPENING, min_size=1, max_size=3), min_size=1, max_size=4)
ONE_OF_EACH: Story = [
    [("late", 40, 10, 3), ("notes", 40, 12, 8)],
    [("update", 52, 6, 4), ("rerun", 30, 20, 1)],
    [("rewrite", 60, 7, 9), ("invalidate", 58, 12, 2)],
    [("merge", 70, 9, 5), ("compact", 0, 1, 0)],
    [("delete", 33, 5, 0), ("early", 75, 9, 2)],
    [("expire", 26, 1, 0), ("fresh", 0, 14, 6)],
    [("cut", 70, 1, 0), ("spare", 90, 20, 7)],
    [("restore", 3, 1, 0)],
    [("replace", 30, 25, 11)],
    [("empty", 0, 1, 0)],
    [("late", 30, 9, 4)],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hindsight")


@contextmanager
def begun(folder: Path, dsn: str, *, feed: bool = True) -> Iterator[Hindsight]:
    trial = Deployment.empty(folder / f"story {next(_NUMBERS)}", dsn)
    with beginning(trial, feed=feed) as life:
        assert life.work() == []
        yield life


def wrong(folder: Path, dsn: str, story: Story, *, feed: bool = True) -> list[str]:
    """What is wrong after the first run after which anything is, and all that happened before."""
    with begun(folder, dsn, feed=feed) as life:
        for chapter in story:
            for one in chapter:
                life.happen(one)
            if found := life.work():
                return [*found, life.story()]
    return []


@settings(effort(1), phases=[Phase.explicit, Phase.reuse, Phase.generate])  # to make a story shorter takes minutes
@given(story=STORIES, feed=st.booleans())
@example(story=ONE_OF_EACH, feed=True)
def test_whatever_changes_afterwards_exactly_what_it_reaches_is_computed_again_and_right(
    folder: Path, dsn: str, story: Story, feed: bool
) -> None:
    """B-23, at every level of the chain and for every kind of change; with I7 when it is quiet."""
    found = wrong(folder, dsn, story, feed=feed)
    assert not found, "\n".join(found)


def test_a_reorg_reported_by_the_log_and_twice_by_its_follower_is_one_recompute_per_consumer(
    folder: Path, dsn: str
) -> None:
    """B-46b: whichever way the change is reported, and however often."""
    with begun(folder, dsn) as life:
        life.happen(("rewrite", 43, 9, 5))
        for how in (1, 1, 3):  # two keys, one of them twice
            life.happen(("invalidate", 43, 9, how))
        assert life.work() == []
        assert life.repaired["copy"] == {40: 1, 50: 1}
        assert life.repaired["rolling"] == {30: 1, 45: 1}
        for how in (1, 3, 5):
            life.happen(("invalidate", 43, 9, how))
        assert life.work() == []
        assert not any(life.repaired.values())


def test_compaction_retention_and_fresh_rows_repair_nothing(folder: Path, dsn: str) -> None:
    """B-5 among them: rows that leave at the old end are no gap and no change."""
    quiet: Story = [[("compact", 0, 1, 0)], [("expire", 47, 1, 0)], [("fresh", 0, 4, 3)], [("expire", 63, 1, 0)]]
    with begun(folder, dsn) as life:
        for chapter in quiet:
            life.happen(chapter[0])
            assert life.work() == []
            assert not any(life.repaired.values())


def _goes_on(patch: pytest.MonkeyPatch) -> None:
    def all_of_it(commit: Commit) -> IntervalSet:
        return IntervalSet.of(chunk.interval for chunk in commit.chunks)

    patch.setattr(Commit, "changed", property(all_of_it))


CONTROLS: dict[str, tuple[list[Happening], str, Callable[[pytest.MonkeyPatch], None]]] = {
    "nobody reads the log": (
        [("late", 40, 10, 3)],
        "copy: [40] were not computed again",
        lambda patch: patch.setattr(changes, "log_changes", lambda *_, **__: changes.NO_CHANGES),
    ),
    "a cascade always goes on": (
        [("update", 43, 1, 1), ("late", 70, 1, 2)],  # the second makes the attempt commit something
        "rolling: [30, 45] were computed again, and nothing below them had changed",
        _goes_on,
    ),
    "a cascade never goes on": (
        [("update", 44, 1, 4)],
        "rolling: [30, 45] were not computed again",
        lambda patch: patch.setattr(Publication, "_tell", lambda *_: None),
    ),
    "repairs keep within the bounds of a source": (
        [("cut", 30, 1, 0)],
        "copy: [50, 60, 70, 80] are still stale",
        lambda patch: patch.setattr(lanes, "repair_readiness", lambda _, found: found),
    ),
}


@pytest.mark.parametrize("mechanism", CONTROLS)
def test_control_without_one_mechanism_it_is_found(
    folder: Path, dsn: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    happenings, complaint, break_it = CONTROLS[mechanism]
    with begun(folder, dsn) as life:
        break_it(monkeypatch)
        for one in happenings:
            life.happen(one)
        assert complaint in life.work()
