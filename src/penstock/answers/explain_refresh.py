"""Why is a dynamic table refreshed or not, and how would it be?"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from penstock.errors import PenstockError, UsageError
from penstock.planner.dynamic.refresh import RefreshObservation, changed_inputs, refresh, refresh_checks
from penstock.planner.dynamic.snapshots import Held
from penstock.planner.observations import Observations
from penstock.project import render_dynamic
from penstock.runtime.place.workspace import Workspace
from penstock.runtime.work.refreshes import refresh_job
from penstock.values.models import DynamicModel
from penstock.values.records import StateView
from penstock.values.tasks import Frontier, Order

_NO_TASK = UUID(int=0)


def refresh_explained(workspace: Workspace, model: DynamicModel) -> dict[str, object]:
    """The planner's own words, and what is known of the query; no Spark is started."""
    view = workspace.state.views.whole()
    seen = Observations(workspace.project.graph, view).refresh(model)
    decision = refresh(seen)
    how = _how(workspace, view, seen)
    return {
        "model": model.name,
        "type": model.type,
        "decision": "enqueue" if isinstance(decision, Order) else "wait",
        "reason": decision.reason,
        "chunk": None,
        "chunk_text": "",
        "checks": [
            {"dependency": check.dependency, "rule": check.rule, "value": check.value, "ok": check.ok, "why": check.why}
            for check in refresh_checks(seen)
        ],
        "reopened": [],
        **how,
    }


def _how(workspace: Workspace, view: StateView, seen: RefreshObservation) -> dict[str, object]:
    """Shape and key of the query, and how the next refresh would be done as far as the logs tell."""
    from penstock.engine.refresh.changes import understood
    from penstock.planner.dynamic.program import Incremental

    unknown: dict[str, object] = {"shape": None, "strategy": None, "key": None, "strategy_reason": None}
    model, generation = seen.model, view.working.get(seen.model.name)
    pins = _pins(seen)
    if pins is None or generation is None:
        return unknown
    try:
        job = refresh_job(workspace.resolver, view, model, pins, generation=generation, task=_NO_TASK, attempt=0)
        query = understood(job, workspace.resolver.storage)
    except PenstockError as error:
        return {**unknown, "strategy_reason": str(error)}
    if not isinstance(query, Incremental):
        return {**unknown, "strategy": "full", "strategy_reason": f"{query.code}: {query.reason}"}
    strategy, why = _expected(seen)
    return {"shape": query.shape, "key": list(query.key), "strategy": strategy, "strategy_reason": why}


def _expected(seen: RefreshObservation) -> tuple[str, str]:
    """What the next refresh of a table that can be kept by its keys does, and why, before a row was read."""
    model = seen.model
    if seen.made_from is None:
        return "full", "NEVER_BUILT: nothing is stored yet"
    if not (changed_inputs(seen) or seen.timed or seen.asked):
        return "no_data", "NO_CHANGE: no input has another snapshot"
    if model.refresh_strategy == "full":
        return "full", "FORCED: refresh_strategy: full"
    if seen.asked:
        return "full", "ASKED: a rerun or an invalidation asked for all of it"
    share = f"{model.cardinality_threshold:g}"
    return "affected_keys", f"the rows of its changed keys, unless more than {share} of all keys changed"


def _pins(seen: RefreshObservation) -> Frontier | None:
    return seen.made_from if isinstance(seen.snapshots, Held) else seen.snapshots


def refresh_rendered(workspace: Workspace, model: DynamicModel) -> dict[str, object]:
    """The query at the snapshots that a refresh would read: the same rows in any Spark session with Delta."""
    from penstock.engine.spark.portable import portable

    view = workspace.state.views.whole()
    pins = _pins(Observations(workspace.project.graph, view).refresh(model))
    missing = [name for name in workspace.project.graph.parents(model.name) if pins is None or name not in pins]
    if pins is None or missing:
        raise UsageError(
            f"{model.name} cannot be rendered: there is no table of {', '.join(missing)} yet",
            hint="penstock run observes sources and builds tables",
        )
    spelled = partial(portable, storage=workspace.resolver.storage)
    sql = render_dynamic(
        model, workspace.project, lambda use: spelled(workspace.resolver.reading("", use.model, pins[use.model]))
    )
    return {"model": model.name, "sql": sql, "chunk": None, "chunk_text": ""}
