"""What was done, what is being done, what waits?"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.answers.status import iso
from penstock.planner.readiness.words import spans
from penstock.runtime.place.workspace import Workspace
from penstock.state.history import TASKS_SHOWN
from penstock.values.models import IntervalModel
from penstock.values.records import AttemptRecord, TaskRecord

PARTITIONS_SHOWN = 20


def task_rows(
    workspace: Workspace, model: str | None, failed: bool, history: bool, limit: int = TASKS_SHOWN
) -> list[dict[str, object]]:
    """The newest so many."""
    name = None if model is None else workspace.resolve(model)
    records = workspace.state.history.tasks(name, failed, history, limit)
    attempts = workspace.state.history.attempts([record.id for record in records])
    return [_row(workspace, record, attempts[record.id]) for record in records]


def task_list(workspace: Workspace, model: str | None, failed: bool, history: bool, limit: int) -> dict[str, object]:
    """The newest so many tasks, how many there are in all, and whether older ones are left out."""
    rows = task_rows(workspace, model, failed, history, limit)
    total = len(rows)
    if total == limit:
        name = None if model is None else workspace.resolve(model)
        total = max(total, workspace.state.history.count_tasks(name, failed, history))
    return {"tasks": rows, "total": total, "truncated": total > len(rows)}


def _row(workspace: Workspace, record: TaskRecord, attempts: Iterable[AttemptRecord]) -> dict[str, object]:
    model = workspace.project.graph.models.get(record.model)
    axis = (model.axis or "") if model is not None else ""
    strict = isinstance(model, IntervalModel) and model.interval.strict
    scope = record.order.scope
    # what is not there yet is not 0
    cost = record.cost if record.state not in ("queued", "running") else None
    return {
        "id": record.id,
        "model": record.model,
        "lane": record.lane,
        "scope": _scope(record, strict=strict),
        "scope_text": "all rows" if record.lane == "refresh" else spans(scope, axis),
        "intervals": len(record.order.chunks),
        "state": record.state,
        "attempt": record.attempt,
        "reason": record.reason,
        "strategy": record.strategy,
        "strategy_reason": record.strategy_reason,
        "spark_jobs": cost and cost.spark_jobs,
        "rows_written": cost and cost.rows_written,
        "rows_read": cost and cost.rows_read,
        "keys_affected": cost and cost.keys,
        "seconds": cost and cost.seconds,
        "snapshot": record.snapshot,
        "error": record.error,
        "attempts": [_attempt(attempt) for attempt in attempts],
    }


def _scope(record: TaskRecord, *, strict: bool) -> dict[str, object]:
    if record.lane == "refresh":
        return {"type": "all" if record.cost.keys is None else "keys", "ranges": []}
    ranges = [[part.start, part.end] for part in record.order.scope]
    return {"type": "interval", "ranges": ranges, **(_partitions(record) if strict else {})}


def _partitions(record: TaskRecord) -> dict[str, object]:
    """Full chunks are partitions, each with a key of its own, oldest first."""
    keys = [chunk.key for chunk in sorted(record.order.chunks)]
    return {"partitions": keys[:PARTITIONS_SHOWN], "partition_count": len(keys)}


def _attempt(attempt: AttemptRecord) -> dict[str, object]:
    return {
        "n": attempt.n,
        "worker": attempt.worker,
        "outcome": attempt.outcome,
        "error_class": attempt.error_class,
        "error": attempt.error,
        "followed_by": attempt.followed_by,
        "log_tail": attempt.log_tail,
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
    }
