"""How does work get into the queue, and who takes it out?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock.errors import LeaseLostError
from penstock.intervals import Interval
from penstock.state.connection import Database
from penstock.state.workers import LEASE_SECONDS
from penstock.tasks import Lane, Lease, Order


@dataclass(frozen=True, slots=True)
class _Claimed:
    task: int
    uuid: UUID
    attempt: int
    token: UUID
    worker: str
    generation: int
    max_attempts: int
    epoch: int
    model: str
    lane: Lane
    chunks: list[Interval]
    choices: list[str]
    reason: str

    @property
    def lease(self) -> Lease:
        order = Order(self.model, self.lane, tuple(self.chunks), tuple(self.choices), self.reason)
        return Lease(
            self.task,
            self.uuid,
            self.attempt,
            self.token,
            self.worker,
            self.generation,
            order,
            self.max_attempts,
            self.epoch,
        )


def enqueue(database: Database, orders: Sequence[Order], generations: Mapping[str, int]) -> int:
    """Add tasks; an order that meets active work, or whose generation is no longer worked on, adds nothing."""
    with database.transaction():
        # several planners would wait for each other's rows in different orders
        database.run("lock_enqueue")
        wanted = sorted({generations[order.model] for order in orders if order.model in generations})
        open_now = set(database.values("share_working_generations", int, generations=wanted))
        taken = [order for order in orders if generations.get(order.model) in open_now]
        added = insert_orders(database, taken, generations)
        if added:
            database.run("wake")
    return added


def insert_orders(
    database: Database, orders: Sequence[Order], generations: Mapping[str, int], split_from: int | None = None
) -> int:
    rows: list[dict[str, object]] = [
        {
            "generation": generations[order.model],
            "lane": order.lane,
            "ranges": order.scope,
            "chunks": list(order.chunks),
            "choices": list(order.choices),
            "reason": order.reason,
            "split_from": split_from,
        }
        for order in orders
    ]
    return database.run_many("insert_task", rows)


def claim(database: Database, worker: str, models: Collection[str] | None = None) -> Lease | None:
    """The fairest task that is due, with a new attempt and a new token."""
    with database.transaction():
        # how many tasks of a model run is only known when nobody else starts one
        database.run("lock_claim")
        names = None if models is None else sorted(models)
        found = database.one("claim", _Claimed, worker=worker, models=names, lease_seconds=LEASE_SECONDS)
    return found.lease if found else None


def release(database: Database, lease: Lease, reason: str) -> None:
    """Give a task back that turned out not to be ready: no failure, no budget used; the planner may plan it anew."""
    with database.transaction():
        fence(database, lease)
        database.run(
            "end_attempt",
            task=lease.task,
            attempt=lease.attempt,
            outcome="released",
            followed_by=None,
            error_class=None,
            error=reason,
            metrics=None,
        )
        database.run("finish_task", task=lease.task, state="cancelled")
        database.run("wake")


def fence(database: Database, lease: Lease) -> None:
    """Lock the task's row, if this attempt still owns it. A lease is a hint; this is the truth."""
    if not database.run("fence", task=lease.task, attempt=lease.attempt, token=lease.token):
        raise LeaseLostError(
            f"attempt {lease.attempt} of task {lease.task} ({lease.order.model} {lease.order.scope}) no longer owns it"
        )
