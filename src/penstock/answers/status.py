"""How is every model doing, in the words that scripts read?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import assert_never

from penstock.answers.pairs import pairs
from penstock.planner.dynamic.refresh import RefreshObservation, changed_inputs, refresh
from penstock.planner.dynamic.snapshots import Held
from penstock.planner.observations import Observations, stale_cells
from penstock.planner.readiness.lanes import gaps_to_fill
from penstock.planner.readiness.observation import Observation, Wait
from penstock.planner.readiness.plan import permanent_gaps, plan
from penstock.planner.readiness.ready import readiness
from penstock.planner.readiness.waits import held_words
from penstock.planner.readiness.words import place
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import Workspace
from penstock.values.intervals import IntervalSet
from penstock.values.models import DynamicModel, IntervalModel, Model, Source
from penstock.values.models.axis import SECOND
from penstock.values.records import Reopened, SourceRecord, StateView, Work, WorkerRecord
from penstock.values.tasks import Frontier, Order


@dataclass(frozen=True, slots=True)
class Condition:
    """Health and the reason for it."""

    health: str
    reason: str


def project_status(workspace: Workspace, model: str | None) -> dict[str, object]:
    """Every model of the project, or one of them, at this moment."""
    names = () if model is None else (workspace.resolve(model),)
    view = workspace.state.views.whole()
    inputs = workspace.state.history.newest_inputs([generation.no for generation in view.current.values()])
    return status(workspace.resolver, view, names, workspace.state.workers.alive(), inputs)


def status(
    resolver: TableResolver,
    view: StateView,
    names: tuple[str, ...],
    workers: Iterable[WorkerRecord] = (),
    inputs: Mapping[int, Frontier] | None = None,
) -> dict[str, object]:
    """`inputs`: by generation what its last accepted attempt read; without it that is left out."""
    models = [resolver.graph.models[name] for name in names or resolver.graph.models]
    observations = Observations(resolver.graph, view)
    return {
        "project": resolver.project.settings.name,
        "revision": view.revision,
        "at": iso(view.at),
        "workers": [_worker(worker) for worker in workers],
        "models": [_row(resolver, observations, model, inputs or {}) for model in models],
    }


def _row(
    resolver: TableResolver, observations: Observations, model: Model, inputs: Mapping[int, Frontier]
) -> dict[str, object]:
    match model:
        case Source():
            return _source(resolver, observations, model)
        case IntervalModel():
            return _interval(resolver, observations, model, inputs)
        case DynamicModel():
            return _dynamic(resolver, observations, model)
        case _:
            assert_never(model)


def _worker(worker: WorkerRecord) -> dict[str, object]:
    return {
        "id": worker.id,
        "role": worker.role,
        "host": worker.host,
        "pid": worker.pid,
        "slots": worker.slots,
        "tasks": worker.tasks,
        "stopping": worker.stopping,
        "since": iso(worker.since),
        "heartbeat_at": iso(worker.heartbeat),
    }


def _source(resolver: TableResolver, observations: Observations, source: Source) -> dict[str, object]:
    view = observations.view
    record = view.sources.get(source.name)
    axis = (source.axis or SECOND) if source.position else None
    offered = IntervalSet()
    if record and record.min_pos is not None and record.end_pos is not None:
        offered = IntervalSet.of([(record.min_pos, record.end_pos - source.lag)])
    seen = observations.input(source.name, axis or SECOND)
    error = record.error if record else None
    reason = error or (seen.why_empty if not seen.available else "; ".join(_observed(source, record, axis)))
    fresh = _moment(record.end_pos if record else None, axis)
    return {
        "name": source.name,
        "type": source.type,
        "desired": "active",
        "health": "blocked" if not seen.available else "failing" if error else "ok",
        "reason": reason,
        "generation": None,
        "location": resolver.source(source) if source.location else None,
        "snapshot": record.snapshot if record else None,
        "axis": axis,
        "coverage": [],
        "available": pairs(offered),
        "gaps": [],
        **_staleness(IntervalSet(), None, view.at),
        "permanent_gaps": [],
        "expired_before": record.expired_pos if record else None,
        "ignored_rows": record.ignored_rows if record else None,
        "ignored_since": iso(record.ignored_since) if record else None,
        "cursor": None,
        "inputs": None,
        **_freshness(fresh, view.at),
        "tasks": _tasks(Work()),
        "last_error": error,
    }


def _observed(source: Source, record: SourceRecord | None, axis: str | None) -> Iterator[str]:
    """How a source is seen, and what of it is of no use any more."""
    yield "observed" if record is None or record.only_spark is None else _watched_through_spark(source, record)
    if record is not None and record.ignored_since is not None and record.expired_pos is not None:
        rows = "rows" if record.ignored_rows is None else f"{record.ignored_rows} rows"
        below = place(record.expired_pos, axis or SECOND)
        since = f"{record.ignored_since.astimezone(UTC):%Y-%m-%d %H:%M}"
        yield f"since {since} {rows} came or changed before {below}, which has expired: they are ignored"


def _watched_through_spark(source: Source, record: SourceRecord) -> str:
    if record.change_feed:
        how = "changes come from its change feed"
    elif source.recheck is not None:
        how = "without a change feed, so each new snapshot is a change of the newest part of what is covered (recheck)"
    else:
        how = "without a change feed, so each new snapshot is a change of all that is covered"
    return f"observed through Spark ({record.only_spark}); {how}"


def _interval(
    resolver: TableResolver, observations: Observations, model: IntervalModel, inputs: Mapping[int, Frontier]
) -> dict[str, object]:
    view, seen = observations.view, observations.observation(model)
    generation, work = view.current.get(model.name), view.work.get(model.name, Work())
    condition = _condition(seen, work)
    working = view.working.get(model.name)
    rebuilt = working is not None and working.state == "building"
    covered = generation.covered if generation else IntervalSet()
    stale = stale_cells(model, generation) if generation else IntervalSet()
    fresh = _moment(covered.end, model.axis)
    return {
        "name": model.name,
        "type": model.type,
        "desired": "paused" if seen.paused else "active",
        "health": condition.health,
        "reason": f"being rebuilt while the old table is served; {condition.reason}" if rebuilt else condition.reason,
        "generation": str(generation.id) if generation else None,
        "location": resolver.table(generation.location) if generation else None,
        "snapshot": generation.accepted_snapshot if generation else None,
        "axis": model.axis,
        "coverage": pairs(covered),
        "available": pairs(covered - stale),
        "gaps": pairs(gaps_to_fill(seen)),
        **_staleness(stale, view.reopened.get(model.name), view.at),
        "permanent_gaps": [[[gap.start, gap.end], why] for gap, why in permanent_gaps(seen)],
        "expired_before": None,
        "ignored_rows": None,
        "ignored_since": None,
        "cursor": _cursor(replace(seen, covered=covered)),
        "inputs": _inputs(inputs.get(generation.no)) if generation and covered else None,
        **_freshness(fresh, view.at),
        "tasks": _tasks(work),
        "last_error": work.last_error,
    }


def _dynamic(resolver: TableResolver, observations: Observations, model: DynamicModel) -> dict[str, object]:
    view, seen = observations.view, observations.refresh(model)
    generation, work = view.current.get(model.name), view.work.get(model.name, Work())
    condition = _refresh_condition(seen, work)
    working = view.working.get(model.name)
    rebuilt = working is not None and working.state == "building"
    return {
        "name": model.name,
        "type": model.type,
        "desired": "paused" if seen.paused else "active",
        "health": condition.health,
        "reason": f"being rebuilt while the old table is served; {condition.reason}" if rebuilt else condition.reason,
        "generation": str(generation.id) if generation else None,
        "location": resolver.table(generation.location) if generation else None,
        "snapshot": generation.accepted_snapshot if generation else None,
        "axis": None,
        "coverage": [],
        "available": [],
        "gaps": [],
        **_staleness(IntervalSet(), None, view.at),
        "permanent_gaps": [],
        "expired_before": None,
        "ignored_rows": None,
        "ignored_since": None,
        "cursor": None,
        "inputs": _inputs(seen.made_from),
        **_freshness(seen.fresh, view.at, seen.target_lag),
        "tasks": _tasks(work),
        "last_error": work.last_error,
    }


def _refresh_condition(seen: RefreshObservation, work: Work) -> Condition:
    decision = refresh(seen)
    if seen.stopped is not None or seen.cancelled:
        return Condition("suspended", decision.reason)
    if work.dead_tasks:
        return Condition("failing", work.last_error or "its last refresh failed")
    if isinstance(decision, Order) or work.running or work.queued or work.retrying:
        return Condition("lagging", decision.reason)
    if seen.missing or isinstance(seen.snapshots, Held):
        return Condition("blocked", decision.reason)
    late = seen.fresh is not None and seen.target_lag and (seen.now - seen.fresh).total_seconds() > seen.target_lag
    return Condition("lagging" if late and changed_inputs(seen) else "ok", decision.reason)


def _staleness(stale: IntervalSet, reopened: Reopened | None, now: datetime) -> dict[str, object]:
    since = reopened.since if stale and reopened else None
    age = None if since is None else max(int((now - since).total_seconds()), 0)
    return {"stale": pairs(stale), "stale_since": iso(since), "stale_seconds": age}


def _cursor(seen: Observation) -> int | None:
    """Where forward goes on; work under way has not moved it yet, and a repair never does."""
    if not seen.covered:
        return None
    ready = readiness(seen)
    reached = None if ready.tip is None else seen.covered.end_below(ready.tip)
    return seen.covered.end if reached is None else reached


def _inputs(frontier: Frontier | None) -> dict[str, int | None] | None:
    return None if frontier is None else {name: pin.snapshot for name, pin in sorted(frontier.items())}


def _condition(seen: Observation, work: Work) -> Condition:
    if (away := _away(seen)) is not None:
        return Condition("suspended", away)
    if work.dead_tasks:
        return Condition("failing", work.last_error or "its last task failed")
    decisions = plan(seen)
    orders = [decision for decision in decisions if isinstance(decision, Order)]
    if orders:
        return Condition("lagging", f"intervals that are ready to be computed: {sum(len(o.chunks) for o in orders)}")
    if work.running:
        return Condition("lagging", f"tasks that are running: {work.running}")
    if work.queued or work.retrying:
        return Condition("lagging", f"tasks that wait for a run: {work.queued + work.retrying}")
    return _resting(seen, [decision for decision in decisions if isinstance(decision, Wait)])


def _away(seen: Observation) -> str | None:
    """Why nothing of it is worked on: it is paused or suspended, or ranges of it are cancelled."""
    name = seen.model.name
    if seen.paused:
        return f"paused until penstock resume {name}"
    return held_words(name, seen.cancelled, seen.model.axis) if seen.cancelled else seen.stopped


def _resting(seen: Observation, waits: Sequence[Wait]) -> Condition:
    """Nothing can be done now: that is fine only if nothing is stale and no gap is left that could be filled."""
    lacking = [wait for wait in waits if wait.lane in ("repair", "backfill") and not wait.permanent]
    reason = next((wait.reason for wait in (*lacking, *waits)), "up to date")
    return Condition("blocked" if lacking or seen.starving else "ok", reason)


def _tasks(work: Work) -> dict[str, int]:
    return {"queued": work.queued, "running": work.running, "retrying": work.retrying, "dead": work.dead_tasks}


def _freshness(fresh: datetime | None, now: datetime, target: int | None = None) -> dict[str, object]:
    lag = None if fresh is None else int((now - fresh).total_seconds())
    return {"data_timestamp": iso(fresh), "lag_seconds": lag, "target_lag_seconds": target}


def _moment(position: int | None, axis: str | None) -> datetime | None:
    """A position as a time; None off the time axis, and for what no calendar shows."""
    if position is None or axis != SECOND:
        return None
    try:
        return datetime.fromtimestamp(position, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()
