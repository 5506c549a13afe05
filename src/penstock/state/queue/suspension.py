"""Which models fail in every interval?"""

from __future__ import annotations

from penstock.errors import ErrorClass
from penstock.planner.policy.breaker import Failed, is_hopeless, signature
from penstock.state.database.connection import Database, storable
from penstock.values.intervals import Interval
from penstock.values.tasks import Order


def suspend_if_hopeless(
    database: Database,
    order: Order,
    generation: int,
    *,
    task: int,
    attempt: int,
    error_class: ErrorClass,
    error: str,
    divisible: bool,
) -> bool:
    """Whether the generation is suspended, perhaps by this failure; the lock keeps other failures out meanwhile."""
    database.run("lock_failures", generation=generation)
    if database.value("is_suspended", bool, generation=generation):
        return True
    last = Failed(task, order.chunks, error, database.value("split_from", int, task=task))
    before = database.rows(
        "failures_in_a_row", _failed, model=order.model, generation=generation, error_class=error_class
    )
    if not is_hopeless(last, before, divisible=divisible):
        return False
    database.run(
        "suspend",
        task=task,
        attempt=attempt,
        error=storable(error),
        alike=storable(signature(error)),
        passing=error_class == "engine",
    )
    database.run("drop_waiting", generation=generation)
    return True


def _failed(*, task: int, chunks: list[Interval], split_from: int | None, error: str | None) -> Failed:
    return Failed(task, tuple(chunks), error or "", split_from)
