"""A Delta source whose log only Spark can read: what is asked of Spark, and what becomes of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment

from penstock.engine.log import handle
from penstock.engine.log.storage import Storage
from penstock.engine.spark.delta_through_spark import SparkTableState
from penstock.errors import SourceError
from penstock.runtime.observe.sources import NeedsSpark, Observer, Seen, SourceObservation, keep
from penstock.runtime.place.workspace import Workspace
from penstock.values.changes import Changed, CommitChanges, LogChanges
from penstock.values.intervals import EVERYTHING, IntervalSet, ranges

SOURCE = "axis: number\ncompleteness: inclusive\nscan: {incremental: 0, full: 1h}\n"
NEWER = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}


@dataclass
class Spark:
    """Answers as Spark would, and how often it was asked."""

    seen: SparkTableState
    feed: LogChanges | None = None
    asked: list[object] = field(default_factory=list)

    def foreign_seen(self, location: str, position: object) -> SparkTableState:
        self.asked.append("seen")
        return self.seen

    def foreign_changes(self, location: str, position: object, after: int, upto: int, first: int | None) -> LogChanges:
        self.asked.append((after, upto, first))
        if self.feed is None:
            raise SourceError("the change feed was off")
        return self.feed


@dataclass
class Trial:
    deployment: Deployment
    workspace: Workspace
    spark: Spark

    def look(self, *, spark: bool = True) -> Seen:
        observer = Observer(self.workspace.resolver, self.spark if spark else None, self.workspace.environ)  # type: ignore[arg-type]
        (seen,) = observer.look(["raw.numbers"], self.workspace.state.views.whole())
        if isinstance(seen, SourceObservation):
            keep(self.workspace.state.sources, seen)
        return seen

    def changed(self) -> IntervalSet:
        seen = self.look()
        assert isinstance(seen, SourceObservation)
        assert seen.record.error is None
        return seen.changed.ranges

    def commit(self, operation: str = "WRITE") -> None:
        """One more commit, which only Spark understands."""
        log = self.deployment.landing("numbers") / "_delta_log"
        self.spark.seen = replace(self.spark.seen, snapshot=self.spark.seen.snapshot + 1)
        actions = [{"commitInfo": {"operation": operation}}, {"protocol": NEWER}]
        text = "".join(json.dumps(one) + "\n" for one in actions)
        (log / f"{self.spark.seen.snapshot:020d}.json").write_text(text)

    def expired(self) -> object:
        return self.deployment.status("raw.numbers")["expired_before"]

    def expire(self) -> None:
        """The rows below 5 leave, and the feed tells it."""
        gone = CommitChanges(Changed(ranges((0, 5))), only_deletes=True, taken=ranges((0, 5)), first=5)
        self.spark.feed = LogChanges((gone,))
        self.spark.seen = replace(self.spark.seen, low=5)
        assert self.changed() == ranges()
        assert self.expired() == 5


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Iterator[Trial]:
    """A table that was read as usual, and then got a feature."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers", SOURCE)
    made.model("copy", "select n, value from {{ ref('raw.numbers') }}")
    made.land("numbers", range(40))
    assert made.run().failed == 0
    with made.opened() as workspace:
        known = workspace.state.views.whole().sources["raw.numbers"]
        assert known.table_id is not None and known.snapshot == 0
        seen = SparkTableState(known.table_id, 0, "hash", {"n": "long", "value": "long"}, 0, 39, 1000, feeds=True)
        story = Trial(made, workspace, Spark(seen))
        story.commit()
        yield story


def changes(*found: tuple[int, int]) -> LogChanges:
    return LogChanges((CommitChanges(Changed(ranges(*found))),))


def test_a_feed_tells_what_changed_from_the_snapshot_on_that_was_read_without_spark(trial: Trial) -> None:
    trial.spark.feed = changes((13, 14))
    assert trial.changed() == ranges((13, 14))
    assert trial.spark.asked == ["seen", (0, 1, 0)]
    shown = trial.deployment.status("raw.numbers")
    assert (shown["snapshot"], shown["health"], shown["available"]) == (1, "ok", [[0, 40]])
    assert "observed through Spark" in str(shown["reason"])
    assert "'later'" in str(shown["reason"])
    assert "come from its change feed" in str(shown["reason"])


def test_spark_is_asked_again_only_when_the_log_goes_on_or_a_full_scan_is_due(trial: Trial) -> None:
    trial.spark.feed = changes()
    assert trial.look(spark=False) == NeedsSpark("raw.numbers")
    trial.look()
    trial.spark.asked.clear()
    assert isinstance(trial.look(spark=False), SourceObservation)
    trial.look()
    assert trial.spark.asked == []
    trial.commit()
    assert trial.look(spark=False) == NeedsSpark("raw.numbers")
    trial.look()
    assert trial.spark.asked == ["seen", (1, 2, 0)]
    trial.deployment.move_clock(3601)
    assert trial.look(spark=False) == NeedsSpark("raw.numbers")


@pytest.mark.parametrize("feeds", [False, True])
def test_without_a_feed_or_with_one_that_cannot_be_read_everything_changed(trial: Trial, feeds: bool) -> None:
    trial.spark.seen = replace(trial.spark.seen, feeds=feeds)
    assert trial.changed() == EVERYTHING
    trial.commit()
    assert trial.changed() == EVERYTHING
    assert ("without a change feed" in str(trial.deployment.status("raw.numbers")["reason"])) is not feeds


def test_recheck_says_how_much_of_it(tmp_path: Path, trial: Trial) -> None:
    trial.spark.seen = replace(trial.spark.seen, feeds=False)
    trial.deployment.source("numbers", SOURCE + "recheck: 15\n")
    with trial.deployment.opened() as workspace:
        assert replace(trial, workspace=workspace).changed() == ranges((25, 40))


def test_another_table_id_from_spark_is_another_table(trial: Trial) -> None:
    trial.spark.feed = changes()
    trial.spark.seen = replace(trial.spark.seen, table_id="another")
    assert trial.changed() == EVERYTHING
    assert trial.spark.asked == ["seen"]


def test_rows_that_the_feed_saw_leave_at_the_old_end_have_expired(trial: Trial) -> None:
    trial.expire()


@pytest.mark.parametrize("feeds", [False, True])
@pytest.mark.parametrize("recheck", [False, True])
def test_a_restore_brings_back_what_had_expired(trial: Trial, feeds: bool, recheck: bool) -> None:
    trial.expire()
    trial.spark.seen = replace(trial.spark.seen, low=0, feeds=feeds)
    trial.spark.feed = changes((0, 5))
    trial.commit("RESTORE")
    if recheck:
        trial.deployment.source("numbers", SOURCE + "recheck: 15\n")
    with trial.deployment.opened() as workspace:
        changed = replace(trial, workspace=workspace).changed()
    assert changed == (ranges((0, 5)) if feeds else ranges((25, 40)) if recheck else EVERYTHING)
    assert trial.expired() is None


def forgotten(trial: Trial) -> None:
    """A RESTORE whose commit is gone by the time anybody looks, as after a checkpoint that came later."""
    trial.commit("RESTORE")
    gone = trial.spark.seen.snapshot
    trial.commit()
    place = trial.deployment.landing("numbers")
    log = place / "_delta_log"
    DeltaTable(place, version=0).create_checkpoint()
    (log / f"{0:020d}.checkpoint.parquet").rename(log / f"{gone:020d}.checkpoint.parquet")
    (log / "_last_checkpoint").unlink()
    for version in range(gone + 1):
        (log / f"{version:020d}.json").unlink()
    trial.deployment.move_clock(3601)  # a full scan is due: the next commit is not there to be seen


def after_many(trial: Trial) -> None:
    """A RESTORE after more commits than anybody reads."""
    for _ in range(3):
        trial.commit()
    trial.commit("RESTORE")


@pytest.mark.parametrize("act", [forgotten, after_many])
def test_a_restore_that_nobody_can_or_will_read_brings_back_what_had_expired(
    trial: Trial, act: Callable[[Trial], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.expire()
    read = counted(monkeypatch)
    monkeypatch.setattr("penstock.engine.observe.changes.MOST_COMMITS", 3)
    trial.spark.seen = replace(trial.spark.seen, low=0)
    trial.spark.feed = changes((0, 5))
    act(trial)
    assert trial.changed() == ranges((0, 5))
    assert trial.expired() is None
    assert len(read) <= 3


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The commits that are read from now on."""
    read: list[int] = []
    usual = handle.commit_at

    def reading(location: str, version: int, storage: Storage | None = None) -> handle.LogCommit | None:
        read.append(version)
        return usual(location, version, storage)

    monkeypatch.setattr(handle, "commit_at", reading)
    return read


def test_as_many_commits_as_are_read_tell_a_late_row_from_a_restore(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.expire()
    monkeypatch.setattr("penstock.engine.observe.changes.MOST_COMMITS", 3)
    trial.spark.seen = replace(trial.spark.seen, low=3)
    trial.spark.feed = changes((3, 4))
    for _ in range(3):
        trial.commit()
    assert trial.changed() == ranges()
    assert trial.expired() == 5


def test_a_late_row_does_not_bring_back_what_has_expired(trial: Trial) -> None:
    trial.expire()
    trial.spark.seen = replace(trial.spark.seen, low=3)
    trial.spark.feed = changes((3, 4))
    trial.commit()
    assert trial.changed() == ranges()
    assert trial.expired() == 5
    assert trial.deployment.status("raw.numbers")["ignored_since"] is not None


def test_control_without_the_word_of_the_log_a_restore_is_a_late_row(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.expire()
    trial.spark.seen = replace(trial.spark.seen, low=0)
    trial.spark.feed = changes((0, 5))
    trial.commit("RESTORE")
    monkeypatch.setattr("penstock.engine.observe.changes.rewinds", lambda *_: False)
    assert trial.changed() == ranges()
    assert trial.expired() == 5


def test_words_about_a_feed_do_not_turn_it_on(trial: Trial) -> None:
    """The name of a feature stands in the sentence for people, and decides nothing."""
    feature = "its change feed"
    log = trial.deployment.landing("numbers") / "_delta_log"
    newer = {**NEWER, "readerFeatures": [feature], "writerFeatures": [feature]}
    (log / f"{1:020d}.json").write_text(json.dumps({"protocol": newer}) + "\n")
    trial.spark.seen = replace(trial.spark.seen, feeds=False)
    trial.spark.feed = changes((13, 14))
    assert trial.changed() == EVERYTHING
    assert trial.spark.asked == ["seen"]
    reason = str(trial.deployment.status("raw.numbers")["reason"])
    assert feature in reason and "without a change feed" in reason
