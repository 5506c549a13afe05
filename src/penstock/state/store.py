"""What can the runtime ask of the state database?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from math import inf
from typing import ClassVar
from uuid import UUID

from penstock.errors import ConflictError, ErrorClass
from penstock.intervals import NOTHING, IntervalSet
from penstock.state import (
    apply,
    audit,
    events,
    failure,
    folding,
    invalidation,
    migrate,
    publication,
    queue,
    sources,
    wakeup,
    workers,
    world,
)
from penstock.state.connection import Database
from penstock.state.folding import Fold
from penstock.state.history import attempts as past_attempts
from penstock.state.history import covers as past_covers
from penstock.state.history import tasks as past_tasks
from penstock.state.records import (
    AttemptRecord,
    Change,
    CoverRecord,
    Definition,
    SourceRecord,
    TaskRecord,
    WorkerRecord,
    World,
)
from penstock.tasks import Cost, Frontier, Lease, Order


class State:
    """One connection to the state of one deployment; every thread needs its own."""

    TASKS_SHOWN: ClassVar[int] = 200

    def __init__(self, database: Database) -> None:
        self.database = database
        self._folds: dict[int, Fold] = {}
        self._listener = wakeup.Listener(database)

    @classmethod
    def open(cls, dsn: str, schema: str, *, migrate: bool) -> State:
        state = cls(Database.connect(dsn, schema))
        try:
            if migrate:
                state.migrate()
            else:
                state.check()
        except BaseException:
            state.close()
            raise
        return state

    @staticmethod
    def server_version(dsn: str) -> str:
        """Which PostgreSQL answers there."""
        database = Database.connect(dsn, "public")
        number = database.connection.info.server_version
        database.close()
        return f"{number // 10000}.{number % 10000}"

    @classmethod
    def migrated(cls, dsn: str, schema: str) -> tuple[str, ...]:
        """Bring a database up to date, wherever it stands; the names of what was applied."""
        state = cls(Database.connect(dsn, schema))
        try:
            return state.migrate()
        finally:
            state.close()

    def close(self) -> None:
        self.database.close()

    def migrate(self) -> tuple[str, ...]:
        """The names of the migrations that were applied."""
        return migrate.migrate(self.database)

    def check(self) -> None:
        """That the tables are those this code needs."""
        migrate.check(self.database)

    # projects

    def changes(self, definitions: Sequence[Definition]) -> tuple[Change, ...]:
        return apply.changes(self.database, definitions)

    def apply(
        self, revision: str, bundle: bytes, manifest: Mapping[str, object], definitions: Sequence[Definition]
    ) -> tuple[Change, ...]:
        return apply.apply(self.database, revision, bundle, manifest, definitions)

    def cutover(self, ready: Collection[str]) -> tuple[str, ...]:
        return apply.cutover(self.database, ready)

    def bundle(self, revision: str) -> bytes:
        return apply.bundle(self.database, revision)

    # looking

    def world(self, dead_since: datetime | None = None) -> World:
        return world.read_world(self.database, dead_since, self._folds)

    def covers(self, generation: int, scope: IntervalSet) -> tuple[CoverRecord, ...]:
        return past_covers(self.database, generation, scope)

    def tasks(
        self, model: str | None, failed: bool, history: bool, limit: int = TASKS_SHOWN + 1
    ) -> tuple[TaskRecord, ...]:
        """Newest first. One more than is shown, so that the caller knows whether older ones are left out."""
        return past_tasks(self.database, model, failed, history, limit)

    def attempts(self, task: int) -> tuple[AttemptRecord, ...]:
        return past_attempts(self.database, task)

    def workers(self) -> tuple[WorkerRecord, ...]:
        return workers.workers(self.database)

    # sources

    def record_source(
        self, record: SourceRecord, expected_snapshot: int | None, changed: IntervalSet = NOTHING
    ) -> bool:
        return sources.record_source(self.database, record, expected_snapshot, changed)

    def record_source_error(self, model: str, error: str) -> None:
        sources.record_source_error(self.database, model, error)

    # queue

    def enqueue(self, orders: Sequence[Order], generations: Mapping[str, int]) -> int:
        return queue.enqueue(self.database, orders, generations)

    def claim(self, worker: str, models: Collection[str] | None = None) -> Lease | None:
        return queue.claim(self.database, worker, models)

    def release(self, lease: Lease, reason: str) -> None:
        queue.release(self.database, lease, reason)

    def fail(
        self,
        lease: Lease,
        error_class: ErrorClass,
        error: str,
        cost: Cost,
        most_pause_seconds: float = inf,
        *,
        divisible: bool = True,
    ) -> failure.FollowedBy:
        return failure.fail(
            self.database,
            lease,
            error_class,
            error,
            cost,
            most_pause_seconds=most_pause_seconds,
            divisible=divisible,
        )

    def reap(self, own_worker: str | None = None) -> int:
        """Requeue what lost workers held; `own_worker` is alive, whatever its session lock says."""
        return failure.reap(self.database, own_worker)

    def register_worker(self, worker: str, info: Mapping[str, object]) -> None:
        workers.register_worker(self.database, worker, info)

    def heartbeat(self, leases: Collection[Lease]) -> tuple[Lease, ...]:
        return workers.heartbeat(self.database, leases)

    # publishing

    def intend(self, lease: Lease, frontier: Frontier, base_snapshot: int | None, staging: str) -> int:
        return publication.intend(self.database, lease, frontier, base_snapshot, staging)

    @contextmanager
    def publishing(self, lease: Lease) -> Iterator[publication.Publication]:
        with publication.publishing(self.database, lease) as publishing:
            yield publishing
        with suppress(ConflictError):  # it is published; somebody else's publication can fold
            self.fold(lease.generation)

    def completed(self, lease: Lease) -> AttemptRecord | None:
        return publication.completed(self.database, lease)

    def fold(self, generation: int) -> None:
        folding.fold(self.database, generation)

    def owned(self, tasks: Collection[UUID]) -> frozenset[UUID]:
        """Those of `tasks` that are active or were accepted."""
        return audit.owned(self.database, tasks)

    def accept_snapshot(self, generation: int, expected: int, snapshot: int) -> None:
        """Serve a newer snapshot that holds the same rows, unless somebody published meanwhile."""
        audit.accept_snapshot(self.database, generation, expected, snapshot)

    def judged(self, generation: int, snapshot: int) -> None:
        """Every commit up to `snapshot` was looked at."""
        audit.judged(self.database, generation, snapshot)

    def forget_table(self, generation: int) -> None:
        """The table is gone: the next publish makes a new one."""
        audit.forget_table(self.database, generation)

    # change

    def invalidate(
        self,
        model: str,
        scope: IntervalSet,
        reason: str,
        actor: str,
        *,
        key: str | None = None,
        rows_unknown: bool = False,
    ) -> int:
        return invalidation.invalidate(self.database, model, scope, reason, actor, key=key, rows_unknown=rows_unknown)

    def handle_events(self, affected: events.Affected) -> int:
        return events.handle_events(self.database, affected)

    def wait_change(self, timeout: float) -> None:
        self._listener.wait(timeout)
