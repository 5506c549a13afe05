"""Which workers are alive?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from psycopg.types.json import Jsonb

from penstock.state.connection import Database
from penstock.state.records import WorkerRecord
from penstock.tasks import Lease

LEASE_SECONDS = 120.0


def register_worker(database: Database, worker: str, info: Mapping[str, object]) -> None:
    """Take the session lock that says this worker lives; PostgreSQL drops it with this connection.

    Every registration gets a new number: the lock of a connection that is only half dead is nobody's obstacle.
    """
    with database.transaction():
        database.run("forget_old_workers")
        no = database.value("register_worker", int, worker=worker, info=Jsonb(dict(info)))
        database.run("lock_worker", no=no)


def heartbeat(database: Database, leases: Collection[Lease]) -> tuple[Lease, ...]:
    """Extend the leases; those that could not be are somebody else's now."""
    if not leases:
        return ()
    kept = database.values(
        "heartbeat",
        UUID,
        tasks=[lease.task for lease in leases],
        attempts=[lease.attempt for lease in leases],
        tokens=[lease.token for lease in leases],
        lease_seconds=LEASE_SECONDS,
    )
    database.run("beat_workers", workers=sorted({lease.worker for lease in leases}))
    return tuple(lease for lease in leases if lease.token not in kept)


def workers(database: Database) -> tuple[WorkerRecord, ...]:
    return tuple(database.rows("live_workers", WorkerRecord))
