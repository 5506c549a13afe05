"""How does one claimed task become rows in a table?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.engine.job import Digest, Job, Staged, Step
from penstock.errors import (
    AttemptError,
    ConflictError,
    EngineError,
    LeaseLostError,
    PenstockError,
    ProjectError,
    QueryError,
    StateError,
)
from penstock.intervals import Interval
from penstock.planner.observation import Wait
from penstock.planner.plan import recheck
from penstock.runtime.jobs import Wanted, job, readable
from penstock.runtime.progress import Finished
from penstock.runtime.site import Site
from penstock.runtime.survey import Survey, superseded, without_own
from penstock.state.records import Generation, World
from penstock.state.store import State
from penstock.tasks import Commit, Cost, Lease, Order

if TYPE_CHECKING:
    from penstock.engine.publish import FileSetChanged

PUBLISH_ROUNDS = 5
RETRY_PAUSE_SECONDS = 5.0
"""A person waits for `run`: its own retries come soon."""


class Engine(Protocol):
    """What an attempt asks of Spark and Delta."""

    def stage(self, job: Job, step: Step) -> Staged: ...

    def restage(self, staged: Staged, step: Step) -> Staged: ...

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged: ...

    def find_commit(self, location: str, task: UUID) -> Commit | None: ...

    def checkpoint(self, location: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything a worker works with."""

    site: Site
    state: State
    engine: Engine
    step: Step


def work(bench: Bench, lease: Lease) -> Finished:
    """Do one claimed task to its end; failures are recorded, bugs are not caught."""
    began = time.monotonic()
    try:
        return _ended(bench, lease, began)
    except LeaseLostError as error:  # whatever came of it, there is nobody left to tell
        return Finished(lease.order, "lost", time.monotonic() - began, error=str(error))


def _ended(bench: Bench, lease: Lease, began: float) -> Finished:
    try:
        result = _attempt(bench, lease)
    except (LeaseLostError, StateError):
        raise
    except PenstockError as error:
        return _failed(bench, lease, error, time.monotonic() - began)
    if isinstance(result, Wait):
        bench.state.release(lease, result.reason)
        return Finished(lease.order, "released", time.monotonic() - began, error=result.reason)
    rows = sum(chunk.rows for chunk in result.chunks)
    return Finished(lease.order, "succeeded", time.monotonic() - began, rows, result.written)


def _attempt(bench: Bench, lease: Lease) -> Commit | Wait:
    world = bench.state.world()
    if superseded(bench.site.project, world):
        return Wait(lease.order.model, "another revision of the project was applied meanwhile")
    generation = world.working.get(lease.order.model)
    if generation is None or generation.no != lease.generation:
        return Wait(lease.order.model, "its generation was replaced meanwhile")
    if lease.attempt > 1:
        adopted = bench.engine.find_commit(bench.site.table(generation.location), lease.uuid)
        if adopted is not None:
            return _accept(bench, lease, adopted)
    model = bench.site.graph.interval_model(lease.order.model)
    seen = Survey(bench.site.graph, world).observation(model)
    verdict = recheck(without_own(seen, lease.order.scope), lease.order)
    if isinstance(verdict, Wait):
        return verdict
    prepared = _prepare(bench, lease, verdict, generation, world)
    bench.step("claimed")
    bench.state.intend(lease, prepared.frontier, generation.accepted_snapshot, f"{lease.uuid}/{lease.attempt}")
    bench.step("intended")
    staged = bench.engine.stage(prepared, bench.step)
    bench.step("staged")
    return _publish(bench, lease, staged)


def _prepare(bench: Bench, lease: Lease, order: Order, generation: Generation, world: World) -> Job:
    """The job of an order that was just found to be ready; its inputs may be others than when it was planned."""
    known: dict[Interval, Digest] = {}
    if generation.covered & order.scope:
        for record in bench.state.covers(generation.no, order.scope):
            if record.digest is not None and record.left.covers(record.interval):
                known[record.interval] = Digest(*record.digest)
    pins = readable(bench.site, order, world)
    wanted = Wanted(order=order, pins=pins, now=int(world.at.timestamp()))
    return job(bench.site, wanted, generation, task=lease.uuid, attempt=lease.attempt, digests=known)


def _publish(bench: Bench, lease: Lease, staged: Staged) -> Commit:
    """Publish under the generation's lock; when the files moved meanwhile, keep other rows and try again."""
    for _ in range(PUBLISH_ROUNDS):
        with bench.state.publishing(lease) as publication:
            bench.step("locked")
            outcome = bench.engine.publish(staged, bench.step)
            if isinstance(outcome, Commit):
                publication.record(outcome, staged.cost, _strategy(staged.job), staged.warnings)
                bench.step("recorded")
        if isinstance(outcome, Commit):
            bench.step("published")
            bench.engine.checkpoint(staged.job.location)
            return outcome
        staged = bench.engine.restage(staged, bench.step)
    raise ConflictError(
        f"{lease.order.model}: the table changed {PUBLISH_ROUNDS} times while the attempt tried to publish",
        hint="is another program writing to it?",
    )


def _accept(bench: Bench, lease: Lease, commit: Commit) -> Commit:
    """Record what an earlier attempt of the same task committed before its worker was lost."""
    with bench.state.publishing(lease) as publication:
        publication.record(commit, Cost(), "adopted", ())
    return commit


def _strategy(prepared: Job) -> str:
    if len(prepared.chunks) == 1:
        return "interval"
    return "widened" if len(prepared.renderings) < len(prepared.chunks) else "union"


def _failed(bench: Bench, lease: Lease, error: PenstockError, seconds: float) -> Finished:
    failure = error if isinstance(error, AttemptError) else _as_attempt_error(error)
    text = failure.message if failure.hint is None else f"{failure.message}\n{failure.hint}"
    cost = Cost(seconds=seconds)
    outcome = bench.state.fail(lease, failure.error_class, text, cost, RETRY_PAUSE_SECONDS, divisible=failure.divisible)
    return Finished(lease.order, outcome, seconds, error=text)


def _as_attempt_error(error: PenstockError) -> AttemptError:
    # a template that fails for one interval is its author's to mend: trying again cannot help
    kind = QueryError if isinstance(error, ProjectError) else EngineError
    return kind(str(error), hint=error.hint)
