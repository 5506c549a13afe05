"""How does work get into the queue, and who takes it out?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from uuid import UUID

from psycopg.types.json import Jsonb

from penstock.errors import ErrorClass, LeaseLostError
from penstock.state.database.connection import Database
from penstock.state.queue.failure import Ended, FollowedBy, abandoned_tasks, follow_up, said_before
from penstock.state.queue.schedules import take_slots
from penstock.state.queue.tasks import fence, insert_orders
from penstock.state.queue.workers import LEASE_SECONDS
from penstock.values.intervals import Interval
from penstock.values.records import Slot
from penstock.values.tasks import Cost, Lane, Lease, Order


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


@dataclass(frozen=True, slots=True)
class Queue:
    _database: Database

    def enqueue(self, orders: Sequence[Order], generations: Mapping[str, int], slots: Sequence[Slot] = ()) -> int:
        """Add tasks; an order that meets active work, or whose generation is no longer worked on, adds nothing.

        One transaction per model, so that one that is just publishing holds up no other. Each slot is taken in the
        transaction of its model; where somebody else had it, that lane's orders are theirs too.
        """
        added = 0
        for model in sorted({order.model for order in orders} | {slot.model for slot in slots}):
            own = [order for order in orders if order.model == model]
            added += self._enqueue(own, generations.get(model), [slot for slot in slots if slot.model == model])
        if added:
            self._database.run("wake")
        return added

    def _enqueue(self, orders: Sequence[Order], generation: int | None, slots: Sequence[Slot]) -> int:
        with self._database.transaction():
            is_open = generation is not None and bool(orders) and self._lock_open(generation)
            lost = take_slots(self._database, slots)
            mine = [order for order in orders if is_open and (order.model, order.lane) not in lost]
            return insert_orders(
                self._database, mine, {order.model: generation for order in mine if generation is not None}
            )

    def _lock_open(self, generation: int) -> bool:
        """Whether the generation is worked on; it stays so until the caller's transaction ends."""
        # a statement does not see what others commit while it waits for them: so wait first, then look
        self._database.run("share_generations", generations=[generation])
        # several planners would wait for each other's rows in different orders
        self._database.run("lock_enqueue", generation=generation)
        return bool(self._database.values("working_generations", int, generations=[generation]))

    def claim(self, worker: str, models: Collection[str] | None = None) -> Lease | None:
        """The fairest task that is due, with a new attempt and a new token."""
        with self._database.transaction():
            # how many tasks of a model run is only known when nobody else starts one
            self._database.run("lock_claim")
            names = None if models is None else sorted(models)
            claimed = self._database.row("claim", _Claimed, worker=worker, models=names, lease_seconds=LEASE_SECONDS)
        return claimed.lease if claimed else None

    def unheard_claim(self, worker: str, held: Collection[int]) -> Lease | None:
        """A task that this worker claimed without hearing the answer; `held` are those it knows of."""
        with self._database.transaction():
            self._database.run("lock_claim")  # the claim in doubt may not have ended yet
            claimed = self._database.row("unheard_claim", _Claimed, worker=worker, held=list(held))
        return claimed.lease if claimed else None

    def release(self, lease: Lease, reason: str) -> None:
        """Give a task back that turned out not to be ready: no failure, no budget used; it may be planned anew."""
        with self._database.transaction():
            self._end_unjudged(lease, reason)
            self._database.run("finish_task", task=lease.task, state="cancelled")
            self._database.run("wake")

    def hand_back(self, lease: Lease, reason: str) -> None:
        """Let another worker do a task that this one cannot finish: no failure, no budget used, due at once."""
        with self._database.transaction():
            self._end_unjudged(lease, reason)
            self._database.run("requeue_task", task=lease.task, state="queued", after_seconds=0.0)
            self._database.run("wake")

    def _end_unjudged(self, lease: Lease, reason: str) -> None:
        fence(self._database, lease)
        self._database.run(
            "end_attempt",
            task=lease.task,
            attempt=lease.attempt,
            outcome="released",
            followed_by=None,
            error_class=None,
            error=reason,
            metrics=None,
        )

    def fail(
        self,
        lease: Lease,
        error_class: ErrorClass,
        error: str,
        cost: Cost,
        most_pause_seconds: float = inf,
        *,
        divisible: bool = True,
    ) -> FollowedBy:
        """Record a failure and what follows from it. Saying it twice gives the same answer."""
        if error_class == "lost":
            return "retrying"  # whoever owns the task now says how it goes on
        ended = Ended(lease.task, lease.attempt, lease.worker, lease.generation, lease.order, lease.max_attempts)
        with self._database.transaction():
            try:
                fence(self._database, lease)
            except LeaseLostError:
                if said := said_before(self._database, lease):
                    return said
                raise
            return follow_up(
                self._database,
                ended,
                outcome="failed",
                error_class=error_class,
                error=error,
                metrics=Jsonb(asdict(cost)),
                most_pause_seconds=most_pause_seconds,
                divisible=divisible,
            )

    def reap(self, own_worker: str | None = None) -> int:
        """Take back the tasks whose lease ran out or whose worker's connection is gone; how many.

        `own_worker` is alive, whatever its session lock says.
        """
        with self._database.transaction():
            abandoned = abandoned_tasks(self._database, own_worker)
            for ended in abandoned:
                gone = f"the worker {ended.worker} is gone"
                follow_up(self._database, ended, outcome="lost", error_class="lost", error=gone)
        return len(abandoned)
