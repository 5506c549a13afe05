"""How does a task get its row, and who may change it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import LeaseLostError
from penstock.state.database.connection import Database
from penstock.values.tasks import Lease, Order


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
    if not rows:
        return 0
    database.run("insert_turns", generations=[row["generation"] for row in rows], lanes=[row["lane"] for row in rows])
    return database.run_many("insert_task", rows)


def fence(database: Database, lease: Lease) -> None:
    """Lock the task's row, if this attempt still owns it. A lease is a hint; this is the truth."""
    if not database.run("fence", task=lease.task, attempt=lease.attempt, token=lease.token):
        raise LeaseLostError(
            f"attempt {lease.attempt} of task {lease.task} ({lease.order.model} {lease.order.scope}) no longer owns it"
        )


def lock_active(
    database: Database, *, task: int | None = None, model: str | None = None, generations: Sequence[int] = ()
) -> list[int]:
    """Hold all active tasks of these; none can be added meanwhile, if the caller holds their generations."""
    locked: list[int] = []
    # a statement does not see what others commit while it waits for them: the halves of a task that was just split, or
    # the attempt of one that was just claimed
    while locked != (
        active := database.values("lock_active_tasks", int, task=task, model=model, generations=list(generations))
    ):
        locked = active
    return locked
