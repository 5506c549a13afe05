"""What should the database say? A small account of tasks and generations, kept beside it and compared with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from invariants import violations

from penstock.errors import LeaseLostError
from penstock.planner.policy.breaker import pieces
from penstock.state.progress import folding
from penstock.state.store import State
from penstock.values.intervals import NOTHING, IntervalSet
from penstock.values.tasks import Lease, Order

if TYPE_CHECKING:
    from conftest import Story

RETRIES = 2
MAX_INFLIGHT = 2
MOST_CONFLICTS = 10
ACTIVE = ("queued", "running", "retrying")


@dataclass
class Entry:
    """What the account says of one task."""

    id: int
    order: Order
    generation: int
    state: str = "queued"
    attempt: int = 0
    run_after: float = 0.0
    lease: Lease | None = None
    expires: float = 0.0
    outcomes: list[str | None] = field(default_factory=list)
    endings: list[tuple[str, str, float]] = field(default_factory=list)
    """The class, the worker and the time of every attempt that failed or was lost."""
    intents: dict[int, int] = field(default_factory=dict)
    """By attempt: the epoch that its last intent was told."""
    before_claim: tuple[str, float] = ("queued", 0.0)
    is_part: bool = False

    @property
    def active(self) -> bool:
        return self.state in ACTIVE


@dataclass
class Build:
    """What the account says of one generation."""

    covered: IntervalSet = NOTHING
    stale: IntervalSet = NOTHING
    epoch: int = 0
    snapshot: int = 0
    marks: list[tuple[int, IntervalSet]] = field(default_factory=list)


@dataclass
class Worker:
    name: str
    state: State
    presence: State
    """Its second connection: the session lock of a living worker."""
    alive: bool = True
    heard: float = 0.0
    """When it last sent a heartbeat."""


class Account:
    """What is known of one deployment, its workers, and every lease that was ever handed out."""

    def __init__(self, story: Story) -> None:
        self.story, self.now = story, 0.0
        self.workers: list[Worker] = []
        self.tasks: dict[int, Entry] = {}
        self.builds: dict[int, Build] = {}
        self.leases: list[Lease] = []
        self.accepted: dict[int, list[UUID]] = {}
        self.stored: dict[UUID, tuple[str, int | None]] = {}
        """By token: how its attempt ended."""
        self.following: dict[UUID, str] = {}
        """By token: what followed from its failure."""

    @property
    def entries(self) -> list[Entry]:
        return list(self.tasks.values())

    @property
    def held(self) -> list[Lease]:
        return [entry.lease for entry in self.entries if entry.lease]

    def holds(self, lease: Lease) -> bool:
        return self.tasks[lease.task].lease == lease

    @contextmanager
    def refused(self, lease: Lease) -> Iterator[None]:
        """The block runs to its end for whoever owns the task; for all others it is refused and changes nothing."""
        if self.holds(lease):
            yield
            return
        with self.unchanged():
            try:
                yield
            except LeaseLostError:
                return
            raise AssertionError(f"attempt {lease.attempt} of task {lease.task} was not refused")

    @contextmanager
    def unchanged(self, but: Sequence[str] | None = ()) -> Iterator[None]:
        """No row of any table differs afterwards, except in the tables named; None: any may."""
        before = None if but is None else self._checksums()
        yield
        if before is not None:
            after = self._checksums()
            assert [name for name in after if after[name] != before[name] and name not in (but or ())] == []

    def check(self) -> None:
        """The database says what the account says, and nothing that may never be."""
        assert violations(self.story.state.database.connection) == []
        assert max((len(tokens) for tokens in self.accepted.values()), default=0) <= 1, "accepted twice"
        stored = {
            (id_, state, attempt, token, expires)
            for id_, state, attempt, token, expires in self.story.execute(
                "select id, state, attempt, lease_token, "
                "extract(epoch from lease_expires_at - timestamptz '2026-01-01 00:00:00+00')::float8 from task"
            )
        }
        assert stored == {
            (
                entry.id,
                entry.state,
                entry.attempt,
                entry.lease and entry.lease.token,
                entry.expires if entry.lease else None,
            )
            for entry in self.entries
        }
        outcomes = self.story.execute(
            "select task, array_agg(outcome order by n) from attempt group by task order by task"
        )
        assert outcomes == [(entry.id, entry.outcomes) for entry in self.entries if entry.outcomes]
        held = folding.read(self.story.state.database, self.builds, {})
        assert {no: (build.covered, build.stale) for no, build in held.items()} == {
            no: (build.covered, build.stale) for no, build in self.builds.items()
        }
        assert not any(build.stale - build.covered for build in held.values())

    # what follows from an act

    def _due(self, models: Collection[str] | None) -> set[int]:
        running = [entry.order.model for entry in self.entries if entry.state == "running"]
        return {
            entry.id
            for entry in self.entries
            if entry.state in ("queued", "retrying")
            and entry.run_after <= self.now
            and running.count(entry.order.model) < MAX_INFLIGHT
            and (models is None or entry.order.model in models)
        }

    def _ended_badly(self, entry: Entry, lease: Lease, error_class: str) -> str:
        """The budget in other words: engine failures and losses cost, conflicts do not, a user's mistake is final."""
        entry.endings.append((error_class, lease.worker, self.now))
        kinds = [kind for kind, *_ in entry.endings]
        # whoever was heard of again had only lost its connection: that loss costs nothing
        heard = {worker.name: worker.heard for worker in self.workers}
        costly = [kind if kind != "lost" or heard[by] <= at else "" for kind, by, at in entry.endings]
        spent = costly.count("engine") + costly.count("lost")
        different = len({by for _, by, _ in entry.endings[-2:]}) == 2
        lost_twice = costly[-2:-1] == ["lost"] and error_class == "lost" and different
        over = {
            "user": True,
            "conflict": kinds.count("conflict") >= MOST_CONFLICTS,
            "engine": spent > RETRIES,
            "lost": spent > RETRIES or lost_twice,
        }[error_class]
        outcome = "lost" if error_class == "lost" else "failed"
        if not over:
            tries = spent if error_class == "engine" else kinds.count(error_class)
            at_once = error_class == "lost" and tries <= 2
            pause = 0.0 if at_once else min(2.0 ** (tries - 1), 300.0)
            self._requeue(entry, "queued" if at_once else "retrying", pause, outcome)
            return "retrying"
        if error_class in ("user", "engine") and len(entry.order.chunks) > 1:
            self._end(entry, "superseded", outcome)
            parts = pieces(entry.order.chunks, probing=not entry.is_part)
            self._note_tasks([replace(entry.order, chunks=part) for part in parts], split_from=entry.id)
            return "split"
        self._end(entry, "dead", outcome)
        return "dead"

    def _end(self, entry: Entry, state: str, outcome: str, *, snapshot: int | None = None) -> None:
        if entry.lease:
            entry.outcomes[-1] = outcome
            self.stored[entry.lease.token] = (outcome, snapshot)
        entry.state, entry.lease = state, None

    def _requeue(self, entry: Entry, state: str, pause: float, outcome: str) -> None:
        self._end(entry, state, outcome)
        [[after]] = self.story.execute(
            "select extract(epoch from run_after - timestamptz '2026-01-01 00:00:00+00')::float8 from task "
            "where id = %s",
            entry.id,
        )
        assert isinstance(after, float)
        assert pause / 2 - 1e-3 <= after - self.now <= pause + 1e-3
        entry.run_after = after

    def _note_tasks(self, orders: Sequence[Order], split_from: int | None = None) -> None:
        """The tasks that the database has and the account does not: exactly these."""
        new = self.story.execute(
            "select id, generation, chunks, split_from from task where id <> all (%s) order by id", list(self.tasks)
        )
        assert [(tuple(row[2]), row[3]) for row in new] == [(order.chunks, split_from) for order in orders]  # type: ignore[arg-type]
        for (id_, generation, *_), order in zip(new, orders, strict=True):
            assert isinstance(id_, int)
            assert isinstance(generation, int)
            assert self.model_of[generation] == order.model
            self.tasks[id_] = Entry(id_, order, generation, run_after=self.now, is_part=split_from is not None)

    def _note_builds(self) -> None:
        rows = self.story.execute("select no, model from generation order by no")
        self.model_of = {int(str(no)): str(model) for no, model in rows}
        self.working = {model: no for no, model in self.model_of.items()}
        for no in self.model_of:
            self.builds.setdefault(no, Build())

    def _is_genuine(self, lease: Lease) -> bool:
        return lease in self.leases

    def _checksums(self) -> dict[str, object]:
        if not hasattr(self, "_sums"):
            tables = self.story.execute(
                "select quote_ident(tablename) from pg_tables where schemaname = current_schema() order by 1"
            )
            self._tables = [str(name) for (name,) in tables]
            sums = (f"(select md5(string_agg(t::text, ';' order by t::text)) from {name} t)" for name in self._tables)
            self._sums = f"select {', '.join(sums)}"
        [values] = self.story.execute(self._sums)
        return dict(zip(self._tables, values, strict=True))
