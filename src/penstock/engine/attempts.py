"""What an attempt does with Spark and Delta, from staging its rows to removing what it left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, assert_never
from uuid import UUID

from penstock.engine.spark.session import Session
from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import AnyJob, HeadMoved, Job, RefreshJob, Step, TableJob
from penstock.errors import AttemptError, EngineError
from penstock.values.tasks import Commit

if TYPE_CHECKING:
    from penstock.engine.commit.publish import FileSetChanged


class Attempts:
    """All attempts of one process; each may be cancelled from another thread."""

    def __init__(self, session: Session, storage: Mapping[str, str]) -> None:
        self.session, self.storage = session, storage
        self._lock = threading.Lock()
        self.jobs = 0
        self._cancelled: set[tuple[UUID, int]] = set()

    def stage(self, job: AnyJob, step: Step) -> Staged:
        self._require_wanted(job)
        return self._counted(lambda: self._staged(job, step))

    def _staged(self, job: AnyJob, step: Step) -> Staged:
        match job:
            case Job():
                from penstock.engine.stage.staging import stage

                return stage(self.session, job, step, self.storage)
            case RefreshJob():
                from penstock.engine.refresh.refreshing import refresh

                return refresh(self.session, job, step, self.storage)
            case _:
                assert_never(job)

    def restage(self, staged: Staged, step: Step) -> Staged:
        job = staged.job
        self._require_wanted(job)
        return self._counted(lambda: self._restaged(staged, step), staged.cost.spark_jobs)

    def _restaged(self, staged: Staged, step: Step) -> Staged:
        match staged.job:
            case Job() as job:
                from penstock.engine.stage.staging import restage

                return restage(self.session, job, staged, step, self.storage)
            case RefreshJob() as job:  # its rows depend on those that were stored
                return self._staged(job, step)
            case _:
                assert_never(staged.job)

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

    def discard(self, job: TableJob, *, others: bool = False) -> None:
        """Remove what an attempt staged that will never publish it; with `others` what all but that attempt staged."""
        from penstock.engine.commit.sweep import discard

        discard(job.location, job.task, job.attempt, self.storage, others=others)

    def cancel(self, task: UUID, attempt: int) -> None:
        """End the Spark jobs of an attempt, from another thread; it begins nothing more."""
        from penstock.engine.stage.staging import group

        self._cancelled.add((task, attempt))
        self.session.cancel(group(task, attempt))

    def _require_wanted(self, job: TableJob) -> None:
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
