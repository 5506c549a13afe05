"""How are an attempt's rows computed, and written as files that no commit names yet?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

from penstock.engine.log.storage import Storage
from penstock.engine.spark.failures import translating
from penstock.engine.spark.read import Reader, plain_schema
from penstock.engine.spark.session import Attempt, Session
from penstock.engine.stage import chunks
from penstock.engine.stage.append import look_up
from penstock.engine.stage.checks import check
from penstock.engine.stage.file_parts import written
from penstock.engine.stage.kept_rows import keep
from penstock.engine.stage.query_rows import Observed, new_rows
from penstock.engine.stage.replaced_files import Head, Target
from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import Job, StagedChunk, StagedFile, Step
from penstock.engine.values.positions import position_field
from penstock.errors import EngineError, QueryError
from penstock.values.intervals import IntervalSet
from penstock.values.models.axis import shown
from penstock.values.tasks import Cost


def group(task: UUID, attempt: int) -> str:
    """The Spark job group of an attempt: `Session.cancel` ends it."""
    return f"{task}/{attempt}"


def stage(session: Session, job: Job, step: Step, storage: Storage | None = None) -> Staged:
    """Compute the job's rows; write them, and what must be kept of the files they replace, under the table's root."""
    return _staged(session, job, step, storage, group(job.task, job.attempt))


def _staged(session: Session, job: Job, step: Step, storage: Storage | None, folder: str) -> Staged:
    began = time.monotonic()
    with _attempt(session, job) as attempt:
        # only at first: should others take these files, nobody waits for them twice
        head = Head.of(job, storage, gather=True)
        reader = Reader(attempt.spark, storage)
        new = new_rows(attempt.spark, job, head, reader)
        step("planned")
        files = written(new.parts, job, folder, storage)
        step("written")
        seen = new.observed()
        _check_inside(job, files, seen)
        if job.unique_key:
            staged = _appended(attempt, job, head, new.target, computed=files, folder=folder, storage=storage)
        else:
            compared = chunks.staged_chunks(
                attempt.spark, job, head, new.target, files=files, seen=seen, stored=job.digests, storage=storage
            )
            kept = _kept(job, head, new.target, compared, folder=folder, storage=storage)
            staged = _replaced(job, head, new.target, files=files, kept=kept, compared=compared)
        warnings = check(attempt.spark, job, reader, files=files, schema=new.target.schema, chunks=staged.chunks)
        written_ = (*staged.files, *staged.kept)
        staged = replace(staged, warnings=warnings, cost=_cost(attempt, written_, new.rows_read, began))
        step("staged")
        return staged


def restage(session: Session, job: Job, staged: Staged, step: Step, storage: Storage | None = None) -> Staged:
    """The same new rows against the table as it is now: only what depends on it is done and written again."""
    began = time.monotonic()
    head = Head.of(job, storage)
    schema = plain_schema(staged.schema_json)
    folder = f"{job.task}/{job.attempt}-{head.version}"
    if not head.takes(schema):
        return _staged(session, job, step, storage, folder)
    target = Target(schema, position_field(staged.schema_json, job.position))
    with _attempt(session, job) as attempt:
        if job.unique_key:
            again = _appended(attempt, job, head, target, computed=staged.computed, folder=folder, storage=storage)
            files = (*again.files, *again.kept)
            step("written")
        else:
            # what the chunks held once says nothing about a table that was changed since
            compared = chunks.staged_chunks(
                attempt.spark, job, head, target, files=staged.files, seen=None, stored={}, storage=storage
            )
            files = _kept(job, head, target, compared, folder=folder, storage=storage)
            step("written")
            again = _replaced(job, head, target, files=staged.files, kept=files, compared=compared)
        cost = _cost(attempt, files, 0, began)
    step("staged")
    # both belong to one job group, whose jobs were just counted together
    return replace(again, warnings=staged.warnings, cost=_sum(replace(staged.cost, spark_jobs=0), cost))


def _replaced(
    job: Job,
    head: Head,
    target: Target,
    *,
    files: tuple[StagedFile, ...],
    kept: tuple[StagedFile, ...],
    compared: tuple[StagedChunk, ...],
) -> Staged:
    return Staged(
        job=job,
        base_version=head.version,
        schema_json=target.schema.json(),
        files=files,
        kept=kept,
        replaced=tuple(file.path for file in head.replaced),
        chunks=compared,
    )


def _appended(
    attempt: Attempt,
    job: Job,
    head: Head,
    target: Target,
    *,
    computed: tuple[StagedFile, ...],
    folder: str,
    storage: Storage | None,
) -> Staged:
    appended = look_up(attempt.spark, job, head, target, computed=computed, folder=folder, storage=storage)
    return Staged(
        job=job,
        base_version=head.version,
        schema_json=target.schema.json(),
        files=appended.files,
        kept=appended.kept,
        replaced=appended.replaced,
        chunks=appended.chunks,
        computed=computed,
        on_base=True,
    )


@contextmanager
def _attempt(session: Session, job: Job) -> Iterator[Attempt]:
    with (
        session.attempt(group(job.task, job.attempt), job.model, job.timeout_seconds) as attempt,
        translating(attempt, job.about, job.timeout_seconds),
    ):
        yield attempt


def _check_inside(job: Job, files: tuple[StagedFile, ...], seen: Observed | None) -> None:
    """A QueryError when a new row lies outside its interval."""
    if seen is not None and seen.outside:
        raise _outside(job, seen.example)
    astray = [file for file in files if not _lies_in(file, job.scope)]
    if astray:
        positions = [p for file in astray for p in (file.low, file.high) if p is not None and p not in job.scope]
        raise _outside(job, positions[0] if positions else None)


def _kept(
    job: Job, head: Head, target: Target, compared: tuple[StagedChunk, ...], *, folder: str, storage: Storage | None
) -> tuple[StagedFile, ...]:
    """The rows to keep; none when nothing will be replaced."""
    if not any(chunk.changed for chunk in compared):
        return ()
    kept = keep(job, head, target.field, folder, storage)
    _check_kept(job, kept)
    return kept


def _check_kept(job: Job, files: tuple[StagedFile, ...]) -> None:
    """A file that spans the scope would be replaced by every later attempt there, for rows it does not have."""
    gaps = job.scope.complement()
    spanning = [file.path for file in files if file.low is not None and not _lies_in(replace(file, nulls=0), gaps)]
    if spanning:
        raise EngineError(f"{job.model}: rows to keep were written across the scope, in {spanning[0]}")


def _lies_in(file: StagedFile, scope: IntervalSet) -> bool:
    if file.low is None or file.high is None or file.nulls:
        return False
    part = scope.part_at(file.low)
    return part is not None and file.high < part.end


def _outside(job: Job, example: int | None) -> QueryError:
    """Without their number, which is not always known: a batch and its parts fail with the same words."""
    axis = job.position.axis
    where = ", ".join(f"[{shown(part.start, axis)}, {shown(part.end, axis)})" for part in job.scope.parts[:3])
    what = "NULL" if example is None else shown(example, axis)
    return QueryError(
        f"{job.about}: rows lie outside of {where}: {job.position.name} is {what} in one of them",
        hint=f"the query must give rows of its own interval only: filter or derive {job.position.name} accordingly",
    )


def _cost(attempt: Attempt, files: tuple[StagedFile, ...], rows_read: int, began: float) -> Cost:
    return Cost(
        spark_jobs=attempt.jobs,
        rows_read=rows_read,
        rows_written=sum(file.rows for file in files),
        bytes_written=sum(file.size for file in files),
        seconds=time.monotonic() - began,
    )


def _sum(first: Cost, second: Cost) -> Cost:
    return Cost(
        first.spark_jobs + second.spark_jobs,
        first.rows_read + second.rows_read,
        first.rows_written + second.rows_written,
        first.bytes_written + second.bytes_written,
        first.seconds + second.seconds,
    )
