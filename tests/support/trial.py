"""The control plane tried by many hands: every act is done in the database and written into a small account beside it.

Each act says first what it expects. Whoever does not own a task must be refused and change no row at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal, TypeVar
from uuid import UUID

from invariants import violations
from kept import empty, stop_clock

from penstock.errors import ErrorClass, LeaseLostError, StateError
from penstock.intervals import NOTHING, IntervalSet
from penstock.planner.breaker import pieces
from penstock.planner.coverage import invalidated, published
from penstock.state import failure, folding
from penstock.state.store import State
from penstock.tasks import ChunkResult, Commit, Frontier, Lease, Order, Pin

if TYPE_CHECKING:
    from conftest import Story

T = TypeVar("T")
LEASE_SECONDS = 120.0
RETRIES = 2
MAX_INFLIGHT = 2
MOST_CONFLICTS = 10
MODELS = ("core.a", "core.b")
ACTIVE = ("queued", "running", "retrying")
How = Literal["record", "nothing", "crash", "adopt"]


class Crash(Exception):  # noqa: N818  stands for a process that ends
    """In the middle of a publication."""


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


class Trial:
    """One deployment, some workers, and every lease that was ever handed out."""

    def __init__(self, story: Story, workers: Sequence[tuple[State, State]]) -> None:
        self.story, self.now, self.revision = story, 0.0, 1
        self.tasks: dict[int, Entry] = {}
        self.builds: dict[int, Build] = {}
        self.leases: list[Lease] = []
        self.accepted: dict[int, list[UUID]] = {}
        self.stored: dict[UUID, tuple[str, int | None]] = {}
        """By token: how its attempt ended."""
        self.following: dict[UUID, str] = {}
        """By token: what followed from its failure."""
        connection = story.state.database.connection
        empty(connection)
        stop_clock(connection, 0)
        self._dice, failure._DICE = failure._DICE, Random(7)  # type: ignore[assignment]
        story.begin()
        self._allow()
        self._note_builds()
        self.workers = [Worker(f"w{n}", work, presence) for n, (work, presence) in enumerate(workers)]
        for worker in self.workers:
            again(partial(worker.presence.register_worker, worker.name, {}))

    def close(self) -> None:
        failure._DICE = self._dice

    # what planners and people do

    def enqueue(self, model: str, *chunks: tuple[int, int]) -> None:
        order, no = self.story.order(*chunks, model=model), self.working[model]
        free = not any(one.active and one.generation == no and one.order.scope & order.scope for one in self.entries)
        assert self.story.state.enqueue([order], {model: no}) == int(free)
        self._note_tasks([order] if free else [])

    def cancel(self, number: int) -> None:
        entry = self.entries[number % len(self.entries)]
        active = entry.active
        assert self.story.state.cancel_task(entry.id, "me") == active
        if active:
            self._end(entry, "cancelled", "cancelled")

    def cancel_model(self, model: str) -> None:
        active = [one for one in self.entries if one.active and one.order.model == model]
        assert self.story.state.cancel_model(model, "me") == len(active)
        for entry in active:
            self._end(entry, "cancelled", "cancelled")

    def invalidate(self, model: str, start: int, end: int) -> None:
        scope = IntervalSet((start, end))
        self.story.state.invalidate(model, scope, "rerun", "me")
        for no, build in self.builds.items():
            if self.model_of[no] == model:
                running = (one.order.scope for one in self.entries if one.active and one.generation == no)
                met = (build.covered | IntervalSet.of(part for one in running for part in one)) & scope
                if met:
                    build.epoch += 1
                    build.marks.append((build.epoch, met))
                build.covered, build.stale = invalidated(build.covered, build.stale, scope)

    def rebuild(self) -> None:
        self.revision += 1
        self.story.state.apply(f"r{self.revision}", b"", {}, self.story.definitions(a=f"{self.revision}"))
        for entry in self.entries:
            if entry.active:
                self._end(entry, "superseded", "superseded")
        self._allow()
        self._note_builds()

    # what time does

    def advance(self, seconds: float) -> None:
        self.now = min(self.now + seconds, 80_000)  # workers are forgotten after a day
        stop_clock(self.story.state.database.connection, self.now)

    def cut(self, number: int) -> None:
        """The server loses the connection that says that this worker lives."""
        worker = self.workers[number % len(self.workers)]
        if worker.alive:
            pid = worker.presence.database.connection.info.backend_pid
            self.story.execute("select pg_terminate_backend(%s)", pid)
            while self.story.execute("select 1 from pg_locks where pid = %s and locktype = 'advisory'", pid):
                pass
            worker.alive = False

    def forget_claim(self, lease: Lease) -> None:
        """The database crashed and forgot its last commit: the worker has a lease that was never given."""
        entry = self.tasks[lease.task]
        assert entry.lease == lease
        (entry.state, entry.run_after), entry.attempt = entry.before_claim, entry.attempt - 1
        entry.lease = None
        entry.outcomes.pop()
        entry.intents.pop(lease.attempt, None)
        self.story.execute("delete from attempt where task = %s and n = %s", lease.task, lease.attempt)
        self.story.execute(
            "update task set state = %s, attempt = attempt - 1, lease_token = null, lease_expires_at = null "
            "where id = %s",
            entry.state,
            lease.task,
        )

    # what workers do

    def claim(self, number: int, models: Collection[str] | None = None) -> Lease | None:
        worker = self.workers[number % len(self.workers)]
        due = self._due(models) if worker.alive else []
        lease = worker.state.claim(worker.name, models)
        assert (lease is not None) == bool(due), f"{lease} of {due}"
        if lease is None:
            return None
        assert lease.task in due
        entry = self.tasks[lease.task]
        entry.before_claim = (entry.state, entry.run_after)
        assert (lease.attempt, lease.order, lease.worker) == (entry.attempt + 1, entry.order, worker.name)
        assert lease.epoch == self.builds[entry.generation].epoch
        assert lease.token not in {one.token for one in self.leases}
        entry.state, entry.attempt, entry.lease = "running", lease.attempt, lease
        entry.expires = self.now + LEASE_SECONDS
        entry.outcomes.append(None)
        self.leases.append(lease)
        return lease

    def heartbeat(self, number: int, leases: Sequence[Lease]) -> None:
        """On the second connection, which may have been lost: then it takes two tries."""
        worker = self.workers[number % len(self.workers)]
        held = [lease for lease in leases if self.holds(lease)]
        with self.unchanged(None if held else ("worker",)):
            lost = again(lambda: worker.presence.heartbeat(leases, worker.name))
        worker.alive = True
        for one in self.workers:
            if one is worker or one.name in {lease.worker for lease in leases}:
                one.heard = self.now
        assert set(lost) == set(leases) - set(held)
        for lease in held:
            self.tasks[lease.task].expires = self.now + LEASE_SECONDS

    def reap(self, own: int | None = None) -> None:
        mine = None if own is None else self.workers[own % len(self.workers)].name
        alive = {worker.name for worker in self.workers if worker.alive} | {mine}
        gone = [
            (one, one.lease)
            for one in self.entries
            if one.lease and (one.expires <= self.now or one.lease.worker not in alive)
        ]
        assert (reaped := self.story.state.reap(mine)) == len(gone), f"{reaped} instead of {gone}, {self.workers} live"
        for entry, lease in gone:
            self._ended_badly(entry, lease, "lost")

    def intend(self, lease: Lease, by: int | None = None) -> None:
        state, entry = self._hand(lease, by), self.tasks[lease.task]
        with self.refused(lease):
            epoch = state.intend(lease, _frontier(lease), None, "")
            assert epoch == self.builds[entry.generation].epoch
            entry.intents[lease.attempt] = epoch

    def complete(self, lease: Lease, how: How = "record", by: int | None = None) -> None:
        """Publish; or record nothing, or crash before the commit; or adopt what an earlier attempt had intended."""
        state, entry, build = self._hand(lease, by), self.tasks[lease.task], self.builds[lease.generation]
        if self.holds(lease) and how in ("nothing", "crash"):
            with self.unchanged():
                self._publish_in_vain(state, lease, how)
            return
        earlier = min(entry.intents.values(), default=lease.epoch)
        epoch = earlier if how == "adopt" else entry.intents.get(lease.attempt, lease.epoch)
        commit = self._commit(lease, build, epoch, adopted=how == "adopt")
        with self.refused(lease):
            self.story.record(lease, commit, state)
            lost = IntervalSet.of(part for mark, where in build.marks if mark > epoch for part in where)
            build.covered, build.stale = published(build.covered, build.stale, lease.order.scope, lost)
            build.snapshot = commit.snapshot
            self.accepted.setdefault(lease.task, []).append(lease.token)
            self._end(entry, "succeeded", "succeeded", snapshot=commit.snapshot)

    def fail(self, lease: Lease, error_class: ErrorClass, by: int | None = None) -> None:
        state, entry = self._hand(lease, by), self.tasks[lease.task]
        if error_class == "lost":
            with self.unchanged():
                assert state.fail(lease, error_class, "no", self.story.cost) == "retrying"
        elif (said := self.following.get(lease.token)) and self._is_genuine(lease):
            with self.unchanged():
                assert state.fail(lease, error_class, "no", self.story.cost) == said
        else:
            with self.refused(lease):
                # no two are alike: what fails alike everywhere would suspend the model
                answer = state.fail(lease, error_class, "x" * lease.task, self.story.cost)
                assert answer == self._ended_badly(entry, lease, error_class)
                self.following[lease.token] = answer

    def release(self, lease: Lease, by: int | None = None) -> None:
        with self.refused(lease):
            self._hand(lease, by).release(lease, "not ready")
            self._end(self.tasks[lease.task], "cancelled", "released")

    def hand_back(self, lease: Lease, by: int | None = None) -> None:
        with self.refused(lease):
            self._hand(lease, by).hand_back(lease, "the worker stops")
            self._requeue(self.tasks[lease.task], "queued", 0.0, "released")

    def storm(self, lease: Lease, error_class: ErrorClass, times: int) -> None:
        """The same failure again and again; whatever else is due is handed back meanwhile."""
        number = next(n for n, worker in enumerate(self.workers) if worker.name == lease.worker)
        self.fail(lease, error_class)
        for _ in range(times):
            self.advance(301)
            again = self.claim(number, [lease.order.model])
            if again is None:
                return
            if again.task == lease.task:
                self.fail(again, error_class)
            else:
                self.hand_back(again)

    def ask(self, lease: Lease) -> None:
        """Whoever lost the answer gets the stored outcome of its very attempt, as often as it asks."""
        with self.unchanged():
            found = self.story.state.completed(lease)
        known = self.stored.get(lease.token) if self._is_genuine(lease) else None
        assert (found and (found.outcome, found.snapshot)) == known

    # how it is looked at

    @property
    def entries(self) -> list[Entry]:
        return list(self.tasks.values())

    @property
    def held(self) -> list[Lease]:
        return [one.lease for one in self.entries if one.lease]

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
        found = {
            (id_, state, attempt, token, expires)
            for id_, state, attempt, token, expires in self.story.execute(
                "select id, state, attempt, lease_token, "
                "extract(epoch from lease_expires_at - timestamptz '2026-01-01 00:00:00+00')::float8 from task"
            )
        }
        assert found == {
            (one.id, one.state, one.attempt, one.lease and one.lease.token, one.expires if one.lease else None)
            for one in self.entries
        }
        outcomes = self.story.execute(
            "select task, array_agg(outcome order by n) from attempt group by task order by task"
        )
        assert outcomes == [(one.id, one.outcomes) for one in self.entries if one.outcomes]
        held = folding.read(self.story.state.database, self.builds, {})
        assert {no: (one.covered, one.stale) for no, one in held.items()} == {
            no: (one.covered, one.stale) for no, one in self.builds.items()
        }
        assert not any(one.stale - one.covered for one in held.values())

    # the account

    def _due(self, models: Collection[str] | None) -> set[int]:
        running = [one.order.model for one in self.entries if one.state == "running"]
        return {
            one.id
            for one in self.entries
            if one.state in ("queued", "retrying")
            and one.run_after <= self.now
            and running.count(one.order.model) < MAX_INFLIGHT
            and (models is None or one.order.model in models)
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
            parts = pieces(entry.order.chunks, probing=error_class == "user" and not entry.is_part)
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
        assert [(tuple(row[2]), row[3]) for row in new] == [(one.chunks, split_from) for one in orders]  # type: ignore[arg-type]
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

    def _allow(self) -> None:
        self.story.execute("update model set retries = %s, max_inflight = %s", RETRIES, MAX_INFLIGHT)

    def _hand(self, lease: Lease, by: int | None) -> State:
        """The connection of the worker that has the lease, or of anybody."""
        names = [worker.name for worker in self.workers]
        return self.workers[names.index(lease.worker) if by is None else by % len(names)].state

    def _is_genuine(self, lease: Lease) -> bool:
        return lease in self.leases

    def _publish_in_vain(self, state: State, lease: Lease, how: How) -> None:
        try:
            with state.publishing(lease) as publication:
                if how == "crash":
                    commit = self._commit(lease, self.builds[lease.generation], lease.epoch)
                    publication.record(commit, self.story.cost, "interval", ())
                    raise Crash
        except Crash:
            return

    def _commit(self, lease: Lease, build: Build, epoch: int, *, adopted: bool = False) -> Commit:
        chunks = tuple(ChunkResult(chunk, 1, True) for chunk in lease.order.chunks)
        return Commit(build.snapshot + 1, chunks, _frontier(lease), epoch, written=True, adopted=adopted)

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


def again(act: Callable[[], T]) -> T:
    """A lost connection is noticed by the first statement; the second has a new one."""
    try:
        return act()
    except StateError:
        return act()


def _frontier(lease: Lease) -> Frontier:
    """Marks of these trials carry no snapshot: what was read does not matter."""
    return {"raw.events" if lease.order.model == "core.a" else "core.a": Pin("somewhere", 1)}


def mixed(one: Lease, other: Lease) -> Lease:
    """A lease that was never given: the attempt of one with the token of another."""
    return replace(one, token=other.token)
