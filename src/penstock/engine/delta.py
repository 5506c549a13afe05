"""What can be asked of Spark and Delta together?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.engine.spark.session import Session, SparkSettings
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import HeadMoved, InputRead, Job, Step
from penstock.errors import AttemptError, EngineError
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models.source_format import SourceFormat
from penstock.values.tasks import Commit

if TYPE_CHECKING:
    from penstock.engine.commit.publish import FileSetChanged
    from penstock.engine.spark.only_spark import ForeignSeen
    from penstock.engine.spark.query import Limits
    from penstock.engine.stage.compare import Comparison
    from penstock.values.changes import LogChanges


class DeltaEngine:
    """The data plane of one process. Spark is imported and started by the first call that needs it."""

    def __init__(self, settings: SparkSettings, storage: Mapping[str, str]) -> None:
        self.session, self.storage = Session(settings), storage
        self._lock = threading.Lock()
        self.jobs = 0
        self._cancelled: set[tuple[UUID, int]] = set()

    @property
    def started(self) -> bool:
        return self.session.started

    def begin(self) -> None:
        """Spark will be needed: let it start while its first job is prepared."""
        self.session.begin()

    def stage(self, job: Job, step: Step) -> Staged:
        from penstock.engine.stage.staging import stage

        self._require_wanted(job)
        return self._counted(lambda: stage(self.session, job, step, self.storage))

    def restage(self, staged: Staged, step: Step) -> Staged:
        from penstock.engine.stage.staging import restage

        self._require_wanted(staged.job)
        before = staged.cost.spark_jobs
        return self._counted(lambda: restage(self.session, staged.job, staged, step, self.storage), before)

    def prepared(self, staged: Staged) -> Staged | FileSetChanged:
        from penstock.engine.commit.publish import prepared

        self._require_wanted(staged.job)
        return prepared(staged, self.storage)

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged | HeadMoved:
        from penstock.engine.commit.publish import publish

        self._require_wanted(staged.job)
        return publish(staged, step, self.storage)

    def find_commit(self, location: str, task: UUID) -> Commit | None:
        from penstock.engine.commit.publish import find_commit

        return find_commit(location, task, self.storage)

    def checkpoint(self, location: str) -> None:
        """Sum the log up and remove old files, now and then; never in the way of a commit."""
        from penstock.engine.commit.publish import checkpoint
        from penstock.engine.commit.sweep import sweep

        if checkpoint(location, self.storage):
            sweep(location, self.storage)

    def discard(self, job: Job, *, others: bool = False) -> None:
        """Remove what an attempt staged that will never publish it; with `others` what all but that attempt staged."""
        from penstock.engine.commit.sweep import discard

        discard(job.location, job.task, job.attempt, self.storage, others=others)

    def query(self, sql: str, reads: Sequence[InputRead], limits: Limits | None = None) -> list[dict[str, object]]:
        from penstock.engine.spark.query import query

        return query(self.session, sql, reads, self.storage, limits)

    def compare(self, job: Job, snapshot: int) -> Comparison:
        from penstock.engine.stage.compare import compare

        return compare(self.session, job, snapshot, self.storage)

    def count_rows(self, read: InputRead) -> int:
        """How many rows a pinned read gives; Spark is asked only when the log cannot rule them out."""
        from penstock.engine.log.handle import FeatureUnsupported
        from penstock.engine.observe.source_log import source_log

        try:
            log = source_log(read.format)
            seen = log.snapshot(read.pin.location, read.position, version=read.pin.snapshot, storage=self.storage)
            if seen is None or not seen.meeting(read.window):
                return 0
        except FeatureUnsupported:
            pass
        view = replace(read, view="penstock_counted")
        (row,) = self.query("select count(*) as n from penstock_counted", (view,))
        return int(str(row["n"]))

    def scan_bounds(
        self,
        location: str,
        source_format: SourceFormat,
        position: PositionColumn,
        *,
        snapshot: int | None,
        sql: str | None,
    ) -> tuple[int | None, int | None]:
        """The least and the greatest position of a source that no log describes."""
        from penstock.engine.spark.scan import scan

        return scan(self.session, location, source_format, position, snapshot=snapshot, sql=sql, storage=self.storage)

    def foreign_seen(self, location: str, position: PositionColumn | None) -> ForeignSeen:
        """A Delta table whose log only Spark can read, as it is now."""
        from penstock.engine.spark.only_spark import seen

        return seen(self.session, location, position)

    def foreign_changes(
        self, location: str, position: PositionColumn, after: int, upto: int, first: int | None
    ) -> LogChanges:
        """What the change feed of such a table tells of the commits between two snapshots."""
        from penstock.engine.spark.only_spark import changes

        return changes(self.session, location, position, (after, upto), first)

    def portable(self, read: InputRead) -> str:
        """A pinned read as anybody can paste it into a Spark session."""
        from penstock.engine.spark.portable import portable

        return portable(read, self.storage)

    def cut(self, sql: str, own: InputRead, interval: Interval) -> str:
        """The rows of a query that belong to one interval of the table `own`."""
        from penstock.engine.spark.portable import cut_to, position_kind

        if own.position is None:
            return sql
        return cut_to(sql, own.position, position_kind(own, own.position, self.storage), IntervalSet.of([interval]))

    @property
    def alive(self) -> bool:
        """False once Spark has ended although nobody stopped it."""
        return self.session.alive

    def cancel(self, task: UUID, attempt: int) -> None:
        """End the Spark jobs of an attempt, from another thread; it begins nothing more."""
        from penstock.engine.stage.staging import group

        self._cancelled.add((task, attempt))
        self.session.cancel(group(task, attempt))

    def on_death(self, act: Callable[[], None]) -> None:
        """Tell when Spark ends by itself."""
        self.session.on_death = act

    def stop(self, *, quick: bool = False) -> None:
        self.session.stop(quick=quick)

    def _require_wanted(self, job: Job) -> None:
        if (job.task, job.attempt) in self._cancelled:
            raise EngineError(f"{job.model}: the attempt was cancelled")

    def _counted(self, act: Callable[[], Staged], before: int = 0) -> Staged:
        """Add the jobs of the attempt beyond those that were counted `before`, also when it fails."""
        jobs = before
        try:
            staged = act()
            jobs = staged.cost.spark_jobs
        except AttemptError as error:
            error.spark_jobs = jobs = max(error.spark_jobs, before)
            raise
        finally:
            with self._lock:
                self.jobs += max(0, jobs - before)
        return staged
