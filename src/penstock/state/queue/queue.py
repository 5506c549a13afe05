"""How does work get into the queue, and who takes it out?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock.state.database.connection import Database
from penstock.state.queue.schedules import take_slots
from penstock.state.queue.tasks import fence, insert_orders
from penstock.state.queue.workers import LEASE_SECONDS
from penstock.values.intervals import Interval
from penstock.values.records import Slot
from penstock.values.tasks import Lane, Lease, Order


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


def enqueue(
    database: Database, orders: Sequence[Order], generations: Mapping[str, int], slots: Sequence[Slot] = ()
) -> int:
    """Add tasks; an order that meets active work, or whose generation is no longer worked on, adds nothing.

    One transaction per model, so that one that is just publishing holds up no other. Each slot is taken in the
    transaction of its model; where somebody else had it, that lane's orders are theirs too.
    """
    added = 0
    for model in sorted({order.model for order in orders} | {slot.model for slot in slots}):
        own = [order for order in orders if order.model == model]
        added += _enqueue(database, own, generations.get(model), [slot for slot in slots if slot.model == model])
    if added:
        database.run("wake")
    return added


def _enqueue(database: Database, orders: Sequence[Order], generation: int | None, slots: Sequence[Slot]) -> int:
    with database.transaction():
        is_open = generation is not None and bool(orders) and _lock_open(database, generation)
        lost = take_slots(database, slots)
        mine = [order for order in orders if is_open and (order.model, order.lane) not in lost]
        return insert_orders(database, mine, {order.model: generation for order in mine if generation is not None})


def _lock_open(database: Database, generation: int) -> bool:
    """Whether the generation is worked on; it stays so until the caller's transaction ends."""
    # a statement does not see what others commit while it waits for them: so wait first, then look
    database.run("share_generations", generations=[generation])
    # several planners would wait for each other's rows in different orders
    database.run("lock_enqueue", generation=generation)
    return bool(database.values("working_generations", int, generations=[generation]))


def claim(database: Database, worker: str, models: Collection[str] | None = None) -> Lease | None:
    """The fairest task that is due, with a new attempt and a new token."""
    with database.transaction():
        # how many tasks of a model run is only known when nobody else starts one
        database.run("lock_claim")
        names = None if models is None else sorted(models)
        found = database.one("claim", _Claimed, worker=worker, models=names, lease_seconds=LEASE_SECONDS)
    return found.lease if found else None


def unheard_claim(database: Database, worker: str, held: Collection[int]) -> Lease | None:
    """A task that this worker claimed without hearing the answer; `held` are those it knows of."""
    with database.transaction():
        database.run("lock_claim")  # the claim in doubt may not have ended yet
        found = database.one("unheard_claim", _Claimed, worker=worker, held=list(held))
    return found.lease if found else None


def release(database: Database, lease: Lease, reason: str) -> None:
    """Give a task back that turned out not to be ready: no failure, no budget used; the planner may plan it anew."""
    with database.transaction():
        _end_unjudged(database, lease, reason)
        database.run("finish_task", task=lease.task, state="cancelled")
        database.run("wake")


def hand_back(database: Database, lease: Lease, reason: str) -> None:
    """Let somebody else do a task that this worker cannot finish: no failure, no budget used, due at once."""
    with database.transaction():
        _end_unjudged(database, lease, reason)
        database.run("requeue_task", task=lease.task, state="queued", after_seconds=0.0)
        database.run("wake")


def _end_unjudged(database: Database, lease: Lease, reason: str) -> None:
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
