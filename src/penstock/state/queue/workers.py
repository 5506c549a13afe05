"""Which workers are alive?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from penstock.state.database.connection import Database
from penstock.values.records import WorkerRecord
from penstock.values.tasks import Lease

LEASE_SECONDS = 120.0
SILENT_SECONDS = LEASE_SECONDS / 2
"""Twice the time between two heartbeats."""


class Workers:
    """Speaks for at most one worker itself: its session lock is lost with the connection, its name is not."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._locked_on: psycopg.Connection | None = None
        self._worker, self._info = "", dict[str, object]()

    def register(self, worker: str, info: Mapping[str, object]) -> None:
        """Take the session lock that says this worker lives; PostgreSQL drops it with this connection.

        Every registration gets a new number: the lock of a connection that is only half dead blocks no other.
        `info` may hold role, host, pid, globs, tags and slots: what people want to see of it.
        """
        with self._database.transaction():
            self._database.run("forget_old_workers")
            no = self._database.value("register_worker", int, worker=worker, info=Jsonb(dict(info)))
            self._database.run("lock_worker", no=no)
            self._absolve([worker])
        self._worker, self._info = worker, dict(info)
        self._locked_on = self._database.connection

    def _renew(self) -> None:
        """Take the lock again if the connection is another one by now: without it our tasks count as lost."""
        if self._locked_on is not None and self._database.ready() is not self._locked_on:
            self.register(self._worker, self._info)

    def say_stopping(self, worker: str) -> None:
        """It finishes what it has and takes no more."""
        self._database.run("say_stopping", worker=worker)

    def heartbeat(self, leases: Collection[Lease], worker: str | None = None) -> tuple[Lease, ...]:
        """Extend the leases and the life of `worker`; those that could not be extended belong to another worker now."""
        self._renew()
        extended: list[UUID] = []
        if leases:
            extended = self._database.values(
                "heartbeat",
                UUID,
                tasks=[lease.task for lease in leases],
                attempts=[lease.attempt for lease in leases],
                tokens=[lease.token for lease in leases],
                lease_seconds=LEASE_SECONDS,
            )
        if living := {lease.worker for lease in leases} | ({worker} if worker is not None else set()):
            silent = self._database.values("silent_workers", str, workers=sorted(living), seconds=SILENT_SECONDS)
            self._database.run("beat_workers", workers=sorted(living))
            self._absolve(silent)
        return tuple(lease for lease in leases if lease.token not in extended)

    def _absolve(self, heard_of: Sequence[str]) -> None:
        """What died only because these seemed to be lost is planned again."""
        if heard_of and self._database.run("absolve", workers=list(heard_of)):
            self._database.run("wake")

    def alive(self) -> tuple[WorkerRecord, ...]:
        return tuple(self._database.rows("live_workers", WorkerRecord))
