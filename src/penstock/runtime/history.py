"""What was done, what is being done, what waits?"""

from __future__ import annotations

from penstock.models import IntervalModel
from penstock.planner.words import spans
from penstock.runtime.workspace import Workspace
from penstock.state.records import TaskRecord


def task_rows(workspace: Workspace, model: str | None, failed: bool, history: bool) -> list[dict[str, object]]:
    name = None if model is None else workspace.resolve(model)
    return [_row(workspace, record) for record in workspace.state.tasks(name, failed, history)]


def _row(workspace: Workspace, record: TaskRecord) -> dict[str, object]:
    model = workspace.project.graph.models.get(record.model)
    axis = model.axis if isinstance(model, IntervalModel) else ""
    scope = record.order.scope
    return {
        "id": record.id,
        "model": record.model,
        "lane": record.lane,
        "scope": {"type": "interval", "ranges": [[part.start, part.end] for part in scope]},
        "scope_text": spans(scope, axis),
        "intervals": len(record.order.chunks),
        "state": record.state,
        "attempt": record.attempt,
        "reason": record.reason,
        "strategy": record.strategy,
        "strategy_reason": None,
        "spark_jobs": record.cost.spark_jobs,
        "rows_written": record.cost.rows_written,
        "rows_read": record.cost.rows_read,
        "keys_affected": None,
        "seconds": record.cost.seconds,
        "snapshot": record.snapshot,
        "error": record.error,
    }
