"""What was done, by whom, from what?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from penstock.state.database.connection import Database, storable
from penstock.state.progress import pins
from penstock.state.progress.attempts import attempt_record, cost_of
from penstock.values.intervals import MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.values.records import AttemptRecord, CoverRecord, TaskRecord
from penstock.values.tasks import Frontier, Lane, Lease, Order, PinRecord, TaskState

ACTIVE: Sequence[TaskState] = ("queued", "running", "retrying")
LOG_CHARACTERS = 20_000
TASKS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class _Row:
    """A cover or a drop."""

    id: int
    kind: str
    range: Interval
    task: int
    attempt: int
    snapshot: int
    rows: int
    digest_rows: Decimal | None
    digest_a: Decimal | None
    digest_b: Decimal | None
    frontier: int

    @property
    def digest(self) -> tuple[int, int, int] | None:
        if self.digest_rows is None or self.digest_a is None or self.digest_b is None:
            return None
        return int(self.digest_rows), int(self.digest_a), int(self.digest_b)


@dataclass(frozen=True, slots=True)
class History:
    _database: Database

    def tasks(self, model: str | None, failed: bool, history: bool, limit: int = TASKS_SHOWN) -> tuple[TaskRecord, ...]:
        """Newest first. Without `history`: active and dead ones; `failed`: only those that are not tried again."""
        return tuple(self._database.rows("tasks", _task, model=model, states=_states(failed, history), limit=limit))

    def count_tasks(self, model: str | None, failed: bool, history: bool) -> int:
        """How many there are in all of what `tasks` gives the newest of."""
        return self._database.value("count_tasks", int, model=model, states=_states(failed, history)) or 0

    def attempts(self, tasks: Collection[int]) -> Mapping[int, tuple[AttemptRecord, ...]]:
        """By task, in the order in which they began; one statement for all of them."""
        by_task: dict[int, list[AttemptRecord]] = {task: [] for task in tasks}
        for attempt in self._database.rows("attempts", attempt_record, tasks=list(by_task)):
            by_task[attempt.task].append(attempt)
        return {task: tuple(attempts) for task, attempts in by_task.items()}

    def keep_log(self, lease: Lease, text: str) -> None:
        """The last lines that an attempt logged; also when it has ended, or was lost: the row is that of its own."""
        tail = storable(text)[-LOG_CHARACTERS:]  # the end of a log says more than its beginning
        self._database.run("keep_log", task=lease.task, attempt=lease.attempt, token=lease.token, log_tail=tail)

    def covers(self, generation: int, scope: IntervalSet) -> tuple[CoverRecord, ...]:
        """The accepted chunks in `scope` that are still the last word about some of their positions."""
        with self._database.looking():
            rows = self._database.rows("connected_rows", _Row, generation=generation, ranges=scope)
            numbers = sorted({row.frontier for row in rows if row.kind == "cover"})
            frontiers = pins.frontiers(self._database, numbers)
        return tuple(
            CoverRecord(
                row.range, left, row.task, row.attempt, row.snapshot, row.rows, row.digest, frontiers[row.frontier]
            )
            for row, left in _last_words(rows)
            if row.kind == "cover" and left & scope
        )

    def newest_inputs(self, generations: Collection[int]) -> Mapping[int, Frontier]:
        """By generation: what its last accepted attempt read."""
        return dict(self._database.rows("newest_inputs", _inputs, generations=list(generations)))


def _states(failed: bool, history: bool) -> list[TaskState] | None:
    if failed:
        return ["dead"]
    return None if history else [*ACTIVE, "dead"]


def _inputs(generation: int, inputs: dict[str, PinRecord]) -> tuple[int, Frontier]:
    return generation, pins.loaded(inputs)


def _last_words(rows: Sequence[_Row]) -> Iterator[tuple[_Row, IntervalSet]]:
    """The rows, sorted by their start, with the positions that nothing was said about later."""
    group: list[_Row] = []
    reach = MIN_POSITION
    for row in rows:
        if row.range.start >= reach:
            yield from _unhidden(group)
            group = []
        group.append(row)
        reach = max(reach, row.range.end)
    yield from _unhidden(group)


def _unhidden(group: Sequence[_Row]) -> list[tuple[_Row, IntervalSet]]:
    said, parts = NOTHING, []
    for row in sorted(group, key=lambda row: row.id, reverse=True):
        whole = IntervalSet((row.range.start, row.range.end))
        if left := whole - said:
            parts.append((row, left))
        said |= whole
    return sorted(parts, key=lambda part: part[0].range)


def _task(
    *,
    id: int,  # noqa: A002  the column's name
    uuid: UUID,
    model: str,
    lane: Lane,
    chunks: list[Interval],
    choices: list[str],
    state: TaskState,
    attempt: int,
    reason: str,
    worker: str | None,
    strategy: str | None,
    strategy_reason: str | None,
    metrics: dict[str, float] | None,
    snapshot: int | None,
    error: str | None,
    created_at: datetime,
    finished_at: datetime | None,
) -> TaskRecord:
    order = Order(model, lane, tuple(chunks), tuple(choices), reason)
    cost = cost_of(metrics)
    return TaskRecord(
        id,
        uuid,
        model,
        lane,
        order,
        state,
        attempt,
        reason,
        worker,
        strategy,
        cost,
        snapshot,
        error,
        created_at,
        finished_at,
        strategy_reason,
    )
