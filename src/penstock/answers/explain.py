"""Why does a chunk run or wait, and what would it run?"""

from __future__ import annotations

from functools import partial

from penstock.answers.explain_refresh import refresh_explained, refresh_rendered
from penstock.answers.reopened import row
from penstock.answers.status import status
from penstock.errors import UsageError
from penstock.planner.observations import Observations
from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.observation import Observation
from penstock.runtime.place.workspace import Workspace
from penstock.runtime.work.jobs import ChunksAtInputs, looks_beyond, readable, renderings
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models import DynamicModel, IntervalModel, Source
from penstock.values.models.axis import position, shown
from penstock.values.records import Generation
from penstock.values.tasks import Order, Pin


def explained(workspace: Workspace, name: str, at: str | None) -> dict[str, object]:
    """The planner's own words about one chunk."""
    full = workspace.resolve(name)
    model = workspace.project.graph.models[full]
    if isinstance(model, Source):
        return _source(workspace, model)
    if isinstance(model, DynamicModel):
        return refresh_explained(workspace, model)
    view = workspace.state.views.whole()
    seen = Observations(workspace.project.graph, view).observation(model)
    explanation = explain(seen, _at(model, at))
    return {
        "model": full,
        "type": model.type,
        "decision": explanation.decision,
        "reason": explanation.reason,
        "chunk": [explanation.chunk.start, explanation.chunk.end] if explanation.chunk else None,
        "chunk_text": _text(explanation.chunk, model.axis),
        "checks": [
            {"dependency": v.dependency, "rule": v.rule, "value": v.value, "ok": v.ok, "why": v.why}
            for v in explanation.readiness_checks
        ],
        "reopened": _reopened(workspace, view.working.get(full), explanation.chunk, everywhere=at is None),
        "strategy": "widened" if model.widens else "interval",
        "key": None,
        "strategy_reason": model.widens_reason,
    }


def _reopened(
    workspace: Workspace, generation: Generation | None, chunk: Interval | None, *, everywhere: bool
) -> list[dict[str, object]]:
    """Why the chunk was to be computed again, newest first; `everywhere`: also why anything is to be now."""
    if generation is None:
        return []
    scope = IntervalSet.of([chunk] if chunk else []) | (generation.stale if everywhere else IntervalSet())
    return [row(record) for record in workspace.state.reopenings.newest(generation.no, scope)] if scope else []


def _source(workspace: Workspace, source: Source) -> dict[str, object]:
    answer = status(workspace.resolver, workspace.state.views.whole(), (source.name,))
    models = answer["models"]
    row = models[0] if isinstance(models, list) else {}
    return {
        "model": source.name,
        "type": source.type,
        "decision": "wait",
        "reason": f"a source is observed, not computed: {row['reason']}",
        "chunk": None,
        "chunk_text": "",
        "checks": [],
        "reopened": [],
        "strategy": None,
        "key": None,
        "strategy_reason": None,
    }


def rendered(workspace: Workspace, name: str, at: str | None) -> dict[str, object]:
    """The SELECT of one chunk in portable form: the same rows in any Spark session with Delta."""
    from penstock.engine.spark.portable import cut, portable

    full = workspace.resolve(name)
    model = workspace.project.graph.models[full]
    if isinstance(model, Source):
        raise UsageError(f"{full} is a source: it is observed, nothing is computed for it")
    if isinstance(model, DynamicModel):
        return refresh_rendered(workspace, model)
    view = workspace.state.views.whole()
    seen = Observations(workspace.project.graph, view).observation(model)
    explanation = explain(seen, _at(model, at))
    chunk = explanation.chunk or _any_chunk(seen)
    choices = explanation.choices or tuple(group[0].model for group in model.dependencies)
    order = Order(full, "forward", (chunk,), choices, "render")
    pins = readable(workspace.resolver, order, view)
    wanted = ChunksAtInputs(order=order, pins=pins, now=int(view.at.timestamp()))
    (rendering,) = renderings(workspace.resolver, wanted, partial(portable, storage=workspace.resolver.storage))
    sql = rendering.sql
    if looks_beyond(model):
        own = workspace.resolver.pin(full, view) or Pin("", None)
        sql = cut(sql, workspace.resolver.reading("", full, own), chunk, workspace.resolver.storage)
    return {"model": full, "sql": sql, "chunk": [chunk.start, chunk.end], "chunk_text": _text(chunk, model.axis)}


def _any_chunk(seen: Observation) -> Interval:
    covered = seen.covered.end
    size = seen.model.interval.max
    if covered is None:
        raise UsageError(f"{seen.model.name} has no chunk yet: its inputs hold nothing", hint="give one with --at")
    return Interval(covered - size, covered)


def _at(model: IntervalModel, at: str | None) -> int | None:
    if at is None:
        return None
    try:
        return position(at, model.axis)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _text(chunk: Interval | None, axis: str) -> str:
    return "" if chunk is None else f"[{shown(chunk.start, axis)}, {shown(chunk.end, axis)})"
