"""How does one claimed task become rows in a table?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar, assert_never
from uuid import UUID

from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import AnyJob, Digest, HeadMoved, Job, RefreshJob, Step
from penstock.errors import (
    AttemptError,
    ConflictError,
    EngineError,
    LeaseLostError,
    PenstockError,
    ProjectError,
    QueryError,
    SparkError,
)
from penstock.planner.dynamic.refresh import recheck_refresh
from penstock.planner.observations import Observations, without_own
from penstock.planner.readiness.observation import Wait
from penstock.planner.readiness.plan import recheck
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.process.containment import contained
from penstock.runtime.process.logs import log
from penstock.runtime.process.progress import Finished
from penstock.runtime.process.retrying import patiently
from penstock.runtime.work.jobs import ChunksAtInputs, job, readable
from penstock.runtime.work.refreshes import refresh_job
from penstock.state.history import History
from penstock.state.progress.attempts import Attempts
from penstock.state.projects import Projects
from penstock.state.queue.queue import Queue
from penstock.state.views import Views
from penstock.values.intervals import Interval
from penstock.values.models import DynamicModel, IntervalModel, Source
from penstock.values.records import Generation, StateView
from penstock.values.tasks import WHOLE, Commit, Cost, Lease, Order

if TYPE_CHECKING:
    from penstock.engine.commit.publish import FileSetChanged

T = TypeVar("T")

PUBLISH_ROUNDS = 5
LOAD_ROUNDS = 5
"""So often the head of the log is loaded before the lock is taken; then behind it, so that it cannot move any more."""


class SparkProcess(Protocol):
    """Whether there is a Spark to work with."""

    @property
    def alive(self) -> bool: ...

    @property
    def started(self) -> bool: ...

    def begin(self) -> None: ...


class Engine(Protocol):
    """What an attempt asks of Spark and Delta."""

    @property
    def session(self) -> SparkProcess: ...

    def cancel(self, task: UUID, attempt: int) -> None: ...

    def stage(self, job: AnyJob, step: Step) -> Staged: ...

    def restage(self, staged: Staged, step: Step) -> Staged: ...

    def prepared(self, staged: Staged) -> Staged | FileSetChanged:
        """With everything loaded that publishing needs: while it publishes, others have to wait."""

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged | HeadMoved: ...

    def find_commit(self, location: str, task: UUID) -> Commit | None: ...

    def checkpoint(self, location: str) -> None: ...

    def discard(self, job: AnyJob, *, others: bool = False) -> None: ...


class Holding(Protocol):
    """What an attempt asks about its own lease."""

    def holds(self, lease: Lease) -> bool: ...

    def require(self, lease: Lease) -> None: ...


class AttemptState(Protocol):
    """What an attempt asks and records; it never raises an invalidation."""

    views: Views
    projects: Projects
    queue: Queue
    attempts: Attempts
    history: History


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """Everything a worker works with."""

    resolver: Callable[[StateView, Projects], TableResolver | None]
    """The project whose tables these are; None when this process must not work on them."""
    state: AttemptState
    engine: Engine
    step: Step
    holding: Holding
    most_pause_seconds: float = inf
    """A person waits for `run`: its own retries come soon."""

    def patiently(self, lease: Lease, act: Callable[[], T]) -> T:
        return patiently(act, lambda: self.holding.holds(lease))


def work(context: AttemptContext, lease: Lease) -> Finished:
    """Do one claimed task to its end; whatever the attempt raises is recorded as its failure."""
    began = time.monotonic()
    try:
        return _ended(context, lease, began)
    except LeaseLostError as error:  # whatever came of it, this worker may not record it
        return Finished(lease.order, "lost", time.monotonic() - began, error=str(error))


def _ended(context: AttemptContext, lease: Lease, began: float) -> Finished:
    try:
        result = _attempt(context, lease)
    except LeaseLostError:
        raise
    except SparkError:  # it did not even start: a fault of this place, not of the task
        context.patiently(lease, lambda: context.state.queue.hand_back(lease, "Spark did not start"))
        raise
    except BaseException as error:
        failure = contained(error)
        if not context.engine.session.alive:  # nothing is wrong with the task: another worker takes it over
            raise SparkError("Spark ended by itself", hint="see its log; was memory short?") from error
        return _failed(context, lease, failure, time.monotonic() - began)
    if isinstance(result, Wait):
        context.patiently(lease, lambda: context.state.queue.release(lease, result.reason))
        return Finished(lease.order, "released", time.monotonic() - began, error=result.reason)
    rows = sum(chunk.rows for chunk in result.commit.chunks)
    seconds = time.monotonic() - began
    return Finished(
        lease.order,
        "succeeded",
        seconds,
        rows,
        result.commit.written,
        strategy=result.strategy,
        keys=result.keys,
    )


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What an attempt committed, and how."""

    commit: Commit
    strategy: str
    keys: int | None = None


def _attempt(context: AttemptContext, lease: Lease) -> _Accepted | Wait:
    view = context.patiently(lease, lambda: context.state.views.lineage(lease.order.model))
    resolver = context.patiently(lease, lambda: context.resolver(view, context.state.projects))
    if resolver is None:
        return Wait(lease.order.model, "another revision of the project was applied meanwhile")
    generation = view.working.get(lease.order.model)
    if generation is None or generation.no != lease.generation:
        return Wait(lease.order.model, "its generation was replaced meanwhile")
    if lease.attempt > 1:
        adopted = context.engine.find_commit(resolver.table(generation.location), lease.uuid)
        if adopted is not None:
            return _Accepted(_accept(context, lease, adopted), "adopted")
    prepared = _prepared(context, resolver, lease, generation=generation, view=view)
    if isinstance(prepared, Wait):
        return prepared
    context.step("claimed")
    _intend(context, lease, prepared, generation)
    context.step("intended")
    with _naming(prepared):
        try:
            staged = context.engine.stage(prepared, context.step)
        except Exception:
            _discard(context, prepared)
            raise
        context.step("staged")
        return _Accepted(_publish(context, lease, staged), _strategy(staged), staged.cost.keys)


def _prepared(
    context: AttemptContext, resolver: TableResolver, lease: Lease, *, generation: Generation, view: StateView
) -> AnyJob | Wait:
    """What the engine is to do, if the order still holds."""
    match resolver.graph.models[lease.order.model]:
        case IntervalModel() as model:
            seen = Observations(resolver.graph, view).observation(model)
            decision = recheck(without_own(seen, lease.order.scope), lease.order)
            if isinstance(decision, Wait):
                return decision
            return context.patiently(
                lease, lambda: _prepare(context, resolver, lease, decision, generation=generation, view=view)
            )
        case DynamicModel() as model:
            # tables with a common consumer stay together: for that all of them are looked at
            whole = context.patiently(lease, context.state.views.whole)
            refresh = Observations(resolver.graph, whole).refresh(model)
            read = recheck_refresh(replace(refresh, in_flight=False, failed=False))
            if isinstance(read, Wait):
                return read
            digest = context.patiently(lease, lambda: _digests(context, generation, lease.order)).get(WHOLE)
            return refresh_job(
                resolver,
                whole,
                model,
                read,
                generation=generation,
                task=lease.uuid,
                attempt=lease.attempt,
                digest=digest,
            )
        case Source():
            return Wait(lease.order.model, "it is a source in this revision")
        case unknown:
            assert_never(unknown)


@contextmanager
def _naming(prepared: AnyJob) -> Iterator[None]:
    """What its author has to mend names the model and its file."""
    try:
        yield
    except QueryError as error:
        if not error.message.startswith(prepared.model):
            error.message = f"{prepared.about}: {error.message}"
        raise


def _intend(context: AttemptContext, lease: Lease, prepared: AnyJob, generation: Generation) -> None:
    staging = f"{lease.uuid}/{lease.attempt}"
    base = generation.accepted_snapshot
    context.patiently(lease, lambda: context.state.attempts.intend(lease, prepared.frontier, base, staging))


def _prepare(
    context: AttemptContext,
    resolver: TableResolver,
    lease: Lease,
    order: Order,
    *,
    generation: Generation,
    view: StateView,
) -> Job:
    """The job of an order that was just found to be ready; its inputs may be others than when it was planned."""
    known = _digests(context, generation, order)
    pins = readable(resolver, order, view)
    wanted = ChunksAtInputs(order=order, pins=pins, now=int(view.at.timestamp()))
    return job(resolver, wanted, generation, task=lease.uuid, attempt=lease.attempt, digests=known)


def _digests(context: AttemptContext, generation: Generation, order: Order) -> dict[Interval, Digest]:
    """What the chunks held when they were last published, where that is known."""
    if not generation.covered & order.scope:
        return {}
    return {
        record.interval: Digest(*record.digest)
        for record in context.state.history.covers(generation.no, order.scope)
        if record.digest is not None and record.left.covers(record.interval)
    }


def _publish(context: AttemptContext, lease: Lease, staged: Staged) -> Commit:
    """Publish under the generation's lock; when the files moved meanwhile, keep other rows and try again."""
    try:
        for _ in range(PUBLISH_ROUNDS):
            outcome = context.patiently(lease, _Publishing(context, lease, staged))
            if isinstance(outcome, Commit):
                context.step("published")
                _clear(context, lease, staged, outcome)
                _sum_up(context, staged)
                return outcome
            staged = context.engine.restage(staged, context.step)
        raise ConflictError(
            f"{lease.order.model}: the table changed {PUBLISH_ROUNDS} times while the attempt tried to publish",
            hint="is another program writing to it?",
        )
    except AttemptError as error:
        error.spark_jobs = max(error.spark_jobs, staged.cost.spark_jobs)
        raise


def _clear(context: AttemptContext, lease: Lease, staged: Staged, commit: Commit) -> None:
    """Remove what was staged and is no part of the commit, as far as no attempt of the task can publish it any more."""
    if commit.adopted:  # by whose files the commit does not say
        return
    if not commit.written:  # what is in the log would stop no other attempt: it may still commit its files
        _discard(context, staged.job)
    elif lease.attempt > 1:
        _discard(context, staged.job, others=True)


def _discard(context: AttemptContext, prepared: AnyJob, *, others: bool = False) -> None:
    try:
        context.engine.discard(prepared, others=others)
    except BaseException as error:  # the outcome counts; what is left behind is removed when it is old
        log("discard_failed", "warning", error=contained(error).message)


def _sum_up(context: AttemptContext, staged: Staged) -> None:
    try:
        context.engine.checkpoint(staged.job.location)
    except BaseException as error:  # it is published: whoever publishes next tries again
        log("checkpoint_failed", "warning", error=contained(error).message)


@dataclass(slots=True)
class _Publishing:
    """One publication, which may be called again when its answer was lost."""

    context: AttemptContext
    lease: Lease
    staged: Staged
    outcome: Commit | None = None

    def __call__(self) -> Commit | FileSetChanged:
        for _ in range(LOAD_ROUNDS):
            ready = self.context.engine.prepared(self.staged)
            if not isinstance(ready, Staged):
                return ready
            outcome = self._once(ready)
            if not isinstance(outcome, HeadMoved):
                return outcome
        outcome = self._once(replace(self.staged, head=None))
        assert not isinstance(outcome, HeadMoved)  # noqa: S101  what is loaded behind the lock does not move
        return outcome

    def _once(self, staged: Staged) -> Commit | FileSetChanged | HeadMoved:
        context, lease = self.context, self.lease
        if self.outcome is not None and _accepted(context.state.attempts, lease):
            return self.outcome
        with context.state.attempts.publishing(lease) as publication:
            context.step("locked")
            context.holding.require(lease)
            outcome = context.engine.publish(staged, context.step)
            if not isinstance(outcome, Commit):
                return outcome
            self.outcome = outcome
            publication.record(
                outcome, _spent(staged, outcome), _strategy(staged), staged.warnings, staged.strategy_reason
            )
            context.step("recorded")
        return outcome


def _spent(staged: Staged, commit: Commit) -> Cost:
    """Rows that came out equal were staged, and left there."""
    return staged.cost if commit.written else replace(staged.cost, rows_written=0, bytes_written=0)


def _accepted(attempts: Attempts, lease: Lease) -> bool:
    """Whether this very attempt was recorded, although the answer was lost."""
    ended = attempts.completed(lease)
    return ended is not None and ended.outcome == "succeeded"


def _accept(context: AttemptContext, lease: Lease, commit: Commit) -> Commit:
    """Record what an earlier attempt of the same task committed before its worker was lost."""
    asked = False

    def act() -> Commit:
        nonlocal asked
        if not asked or not _accepted(context.state.attempts, lease):
            asked = True
            with context.state.attempts.publishing(lease) as publication:
                publication.record(commit, Cost(), "adopted", ())
        return commit

    return context.patiently(lease, act)


def _strategy(staged: Staged) -> str:
    prepared = staged.job
    if isinstance(prepared, RefreshJob):
        return staged.strategy
    if len(prepared.chunks) == 1:
        return "interval"
    return "widened" if len(prepared.renderings) < len(prepared.chunks) else "union"


def _failed(context: AttemptContext, lease: Lease, error: PenstockError, seconds: float) -> Finished:
    log("failed", "debug", error=str(error), cause=None if error.__cause__ is None else repr(error.__cause__))
    failure = error if isinstance(error, AttemptError) else _as_attempt_error(error)
    text = failure.message if failure.hint is None else f"{failure.message}\n{failure.hint}"
    cost = Cost(spark_jobs=failure.spark_jobs, seconds=seconds)
    outcome = context.patiently(
        lease,
        lambda: context.state.queue.fail(
            lease, failure.error_class, text, cost, context.most_pause_seconds, divisible=failure.divisible
        ),
    )
    return Finished(lease.order, outcome, seconds, error=text)


def _as_attempt_error(error: PenstockError) -> AttemptError:
    # a template that fails for one interval is its author's to mend: trying again cannot help
    kind = QueryError if isinstance(error, ProjectError) else EngineError
    return kind(str(error), hint=error.hint)
