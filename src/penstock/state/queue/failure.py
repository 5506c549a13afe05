"""What becomes of tasks whose attempt failed or whose worker is gone?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from random import SystemRandom
from typing import Literal, assert_never

from psycopg.types.json import Jsonb

from penstock.errors import ErrorClass
from penstock.planner.policy.breaker import pieces, signature
from penstock.planner.policy.retry import Die, Ending, Next, Retry, Split, SplitFailures, hold_seconds, next_step
from penstock.state.database.connection import Database, storable
from penstock.state.queue.suspension import suspend_if_hopeless
from penstock.state.queue.tasks import insert_orders
from penstock.values.intervals import Interval
from penstock.values.tasks import Lane, Lease, Order

FollowedBy = Literal["retrying", "dead", "split"]
_RANDOM = SystemRandom()


@dataclass(frozen=True, slots=True)
class Ended:
    """A task whose attempt has just ended without a result."""

    task: int
    attempt: int
    worker: str
    generation: int
    order: Order
    max_attempts: int


def said_before(database: Database, lease: Lease) -> FollowedBy | None:
    """What followed from the failure of this very attempt, if it was recorded already."""
    said = database.value("stored_following", str, task=lease.task, attempt=lease.attempt, token=lease.token)
    return _followed_by(said) if said else None


def abandoned_tasks(database: Database, own_worker: str | None) -> list[Ended]:
    return database.rows("abandoned_tasks", _abandoned, own_worker=own_worker)


def follow_up(
    database: Database,
    ended: Ended,
    *,
    outcome: str,
    error_class: ErrorClass,
    error: str,
    metrics: Jsonb | None = None,
    most_pause_seconds: float = inf,
    divisible: bool = True,
) -> FollowedBy:
    """One transaction: the attempt ends, and the task is tried again, split or dead."""
    before = database.rows("earlier_endings", Ending, task=ended.task, attempt=ended.attempt)
    endings = (*before, Ending(error_class, ended.worker))
    split_failures = _split_failures(database, ended.task, error) if error_class == "engine" else SplitFailures()
    chunks = len(ended.order.chunks) if divisible else 1
    step = next_step(endings, chunks, ended.max_attempts, _RANDOM, split_failures)
    if isinstance(step, Retry):
        step = Retry(min(step.after_seconds, most_pause_seconds))
    given_up = not isinstance(step, Retry) and error_class in ("user", "engine")
    if given_up and suspend_if_hopeless(
        database,
        ended.order,
        ended.generation,
        task=ended.task,
        attempt=ended.attempt,
        error_class=error_class,
        error=error,
        divisible=divisible,
    ):
        step = Die("every interval fails alike")
    followed_by = _take(database, ended, step, at_once=outcome == "lost")
    database.run(
        "end_attempt",
        task=ended.task,
        attempt=ended.attempt,
        outcome=outcome,
        followed_by=followed_by,
        error_class=error_class,
        error=storable(f"{error}\n{step.why}" if isinstance(step, Die) and error_class != "user" else error),
        metrics=metrics,
    )
    database.run("wake")
    return followed_by


def _take(database: Database, ended: Ended, step: Next, *, at_once: bool) -> FollowedBy:
    match step:
        case Retry(after):
            state = "queued" if at_once and not after else "retrying"
            database.run("requeue_task", task=ended.task, state=state, after_seconds=after)
            return "retrying"
        case Split():
            database.run("finish_task", task=ended.task, state="superseded")
            probing = database.value("split_from", int, task=ended.task) is None
            parts = [replace(ended.order, chunks=part) for part in pieces(ended.order.chunks, probing=probing)]
            insert_orders(database, parts, {ended.order.model: ended.generation}, split_from=ended.task)
            return "split"
        case Die(quarantined=quarantined):
            deaths = 1 + (database.value("deaths_in_a_row", int, task=ended.task) or 0)
            database.run("bury_task", task=ended.task, hold=hold_seconds(deaths, quarantined=quarantined))
            return "dead"
        case _:
            assert_never(step)


def _split_failures(database: Database, task: int, error: str) -> SplitFailures:
    """How often the batch that a task is a part of, and its other parts, have failed in the same way."""
    errors = database.rows("errors_of_family", _error, task=task)
    alike = [above for other, above in errors if signature(other) == signature(error)]
    return SplitFailures(batch=sum(alike), all=len(alike))


def _error(*, error: str | None, above: bool) -> tuple[str, bool]:
    return error or "", above


def _abandoned(
    *,
    id: int,  # noqa: A002  the column's name
    attempt: int,
    worker: str,
    generation: int,
    max_attempts: int,
    model: str,
    lane: Lane,
    chunks: list[Interval],
    choices: list[str],
    reason: str,
) -> Ended:
    order = Order(model, lane, tuple(chunks), tuple(choices), reason)
    return Ended(id, attempt, worker, generation, order, max_attempts)


def _followed_by(said: str) -> FollowedBy:
    match said:
        case "retrying" | "dead" | "split":
            return said
        case _:
            raise ValueError(f"{said!r} follows no failure")
