"""A Delta source whose log only Spark can read: what is asked of Spark, and what becomes of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from deployment import Deployment

from penstock.engine.changes import CommitChanges, LogChanges
from penstock.engine.foreign import ForeignSeen
from penstock.errors import SourceError
from penstock.intervals import EVERYTHING, IntervalSet, ranges
from penstock.runtime.observing import NeedsSpark, Observer, Seen, Sight, keep
from penstock.runtime.workspace import Workspace
from penstock.tasks import Changed

SOURCE = "axis: number\ncompleteness: inclusive\nscan: {incremental: 0, full: 1h}\n"
NEWER = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}


@dataclass
class Spark:
    """Answers as Spark would, and how often it was asked."""

    seen: ForeignSeen
    feed: LogChanges | None = None
    asked: list[object] = field(default_factory=list)

    def foreign_seen(self, location: str, position: object) -> ForeignSeen:
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
        observer = Observer(self.workspace.site, self.spark if spark else None, self.workspace.environ)  # type: ignore[arg-type]
        (seen,) = observer.look(["raw.numbers"], self.workspace.state.world())
        if isinstance(seen, Sight):
            keep(self.workspace.state, seen)
        return seen

    def changed(self) -> IntervalSet:
        seen = self.look()
        assert isinstance(seen, Sight)
        assert seen.record.error is None
        return seen.changed.ranges

    def commit(self) -> None:
        """One more commit, which only Spark understands."""
        log = self.deployment.landing("numbers") / "_delta_log"
        self.spark.seen = replace(self.spark.seen, snapshot=self.spark.seen.snapshot + 1)
        action = {"protocol": NEWER}
        (log / f"{self.spark.seen.snapshot:020d}.json").write_text(json.dumps(action) + "\n")


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Iterator[Trial]:
    """A table that was read as usual, and then got a feature."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers", SOURCE)
    made.model("copy", "select n, value from {{ ref('raw.numbers') }}")
    made.land("numbers", range(40))
    assert made.run().failed == 0
    with made.opened() as workspace:
        known = workspace.state.world().sources["raw.numbers"]
        assert known.table_id is not None and known.snapshot == 0
        seen = ForeignSeen(known.table_id, 0, "hash", {"n": "long", "value": "long"}, 0, 39, 1000, feeds=True)
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
    assert "watched through Spark" in str(shown["reason"])
    assert "'later'" in str(shown["reason"])
    assert "change feed tells" in str(shown["reason"])


def test_spark_is_asked_again_only_when_the_log_goes_on_or_a_full_scan_is_due(trial: Trial) -> None:
    trial.spark.feed = changes()
    assert trial.look(spark=False) == NeedsSpark("raw.numbers")
    trial.look()
    trial.spark.asked.clear()
    assert isinstance(trial.look(spark=False), Sight)
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
    gone = CommitChanges(Changed(ranges((0, 5))), only_deletes=True, taken=ranges((0, 5)), first=5)
    trial.spark.feed = LogChanges((gone,))
    trial.spark.seen = replace(trial.spark.seen, low=5)
    assert trial.changed() == ranges()
    assert trial.deployment.status("raw.numbers")["expired_before"] == 5
