"""The control plane tried by many hands: every act is done in the database and written into the account beside it.

Each act says first what it expects. Whoever does not own a task must be refused and change no row at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal, TypeVar

from account import MAX_INFLIGHT, RETRIES, Account, Build, Worker
from kept import empty, stop_clock

from penstock.errors import ErrorClass, StateError
from penstock.planner.change.coverage import invalidated, published
from penstock.state.queue import failure
from penstock.state.store import State
from penstock.values.intervals import IntervalSet
from penstock.values.tasks import ChunkResult, Commit, Frontier, Lease, Pin

if TYPE_CHECKING:
    from conftest import Story

T = TypeVar("T")
LEASE_SECONDS = 120.0
MODELS = ("core.a", "core.b")
How = Literal["record", "nothing", "crash", "adopt"]


class Crash(Exception):  # noqa: N818  stands for a process that ends
    """In the middle of a publication."""


class Trial(Account):
    """One deployment and some workers: what planners, people, time and workers do."""

    def __init__(self, story: Story, workers: Sequence[tuple[State, State]]) -> None:
        super().__init__(story)
        self.revision = 1
        connection = story.state.database.connection
        empty(connection)
        stop_clock(connection, 0)
        self._dice, failure._RANDOM = failure._RANDOM, Random(7)  # type: ignore[assignment]
        story.begin()
        self._allow()
        self._note_builds()
        self.workers = [Worker(f"w{n}", work, presence) for n, (work, presence) in enumerate(workers)]
        for worker in self.workers:
            again(partial(worker.presence.workers.register, worker.name, {}))

    def close(self) -> None:
        failure._RANDOM = self._dice

    # what planners and people do

    def enqueue(self, model: str, *chunks: tuple[int, int]) -> None:
        order, no = self.story.order(*chunks, model=model), self.working[model]
        free = not any(
            entry.active and entry.generation == no and entry.order.scope & order.scope for entry in self.entries
        )
        assert self.story.state.queue.enqueue([order], {model: no}) == int(free)
        self._note_tasks([order] if free else [])

    def cancel(self, number: int) -> None:
        entry = self.entries[number % len(self.entries)]
        active = entry.active
        assert self.story.state.control.cancel_task(entry.id, "me") == active
        if active:
            self._end(entry, "cancelled", "cancelled")

    def cancel_model(self, model: str) -> None:
        active = [entry for entry in self.entries if entry.active and entry.order.model == model]
        assert self.story.state.control.cancel_model(model, "me") == len(active)
        for entry in active:
            self._end(entry, "cancelled", "cancelled")

    def invalidate(self, model: str, start: int, end: int) -> None:
        scope = IntervalSet((start, end))
        self.story.state.invalidations.invalidate(model, scope, "rerun", "me")
        for no, build in self.builds.items():
            if self.model_of[no] == model:
                running = (entry.order.scope for entry in self.entries if entry.active and entry.generation == no)
                met = (build.covered | IntervalSet.of(part for scopes in running for part in scopes)) & scope
                if met:
                    build.epoch += 1
                    build.marks.append((build.epoch, met))
                build.covered, build.stale = invalidated(build.covered, build.stale, scope)

    def rebuild(self) -> None:
        self.revision += 1
        self.story.state.projects.apply(f"r{self.revision}", b"", {}, self.story.definitions(a=f"{self.revision}"))
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
        lease = worker.state.queue.claim(worker.name, models)
        assert (lease is not None) == bool(due), f"{lease} of {due}"
        if lease is None:
            return None
        assert lease.task in due
        entry = self.tasks[lease.task]
        entry.before_claim = (entry.state, entry.run_after)
        assert (lease.attempt, lease.order, lease.worker) == (entry.attempt + 1, entry.order, worker.name)
        assert lease.epoch == self.builds[entry.generation].epoch
        assert lease.token not in {earlier.token for earlier in self.leases}
        entry.state, entry.attempt, entry.lease = "running", lease.attempt, lease
        entry.expires = self.now + LEASE_SECONDS
        entry.outcomes.append(None)
        self.leases.append(lease)
        return lease

    def heartbeat(self, number: int, leases: Sequence[Lease]) -> None:
        """On the second connection, which may have been lost: then it takes two tries."""
        worker = self.workers[number % len(self.workers)]
        held = [lease for lease in leases if self.holds(lease)]
        # what died because this worker seemed to be lost is no longer held
        dead = any(entry.state == "dead" for entry in self.entries)
        with self.unchanged(None if held else ("worker", "task") if dead else ("worker",)):
            lost = again(lambda: worker.presence.workers.heartbeat(leases, worker.name))
        worker.alive = True
        for other in self.workers:
            if other is worker or other.name in {lease.worker for lease in leases}:
                other.heard = self.now
        assert set(lost) == set(leases) - set(held)
        for lease in held:
            self.tasks[lease.task].expires = self.now + LEASE_SECONDS

    def reap(self, own: int | None = None) -> None:
        mine = None if own is None else self.workers[own % len(self.workers)].name
        alive = {worker.name for worker in self.workers if worker.alive} | {mine}
        gone = [
            (entry, entry.lease)
            for entry in self.entries
            if entry.lease and (entry.expires <= self.now or entry.lease.worker not in alive)
        ]
        assert (reaped := self.story.state.queue.reap(mine)) == len(gone), (
            f"{reaped} instead of {gone}, {self.workers} live"
        )
        for entry, lease in gone:
            self._ended_badly(entry, lease, "lost")

    def intend(self, lease: Lease, by: int | None = None) -> None:
        state, entry = self._hand(lease, by), self.tasks[lease.task]
        with self.refused(lease):
            epoch = state.attempts.intend(lease, _frontier(lease), None, "")
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
                assert state.queue.fail(lease, error_class, "no", self.story.cost) == "retrying"
        elif (said := self.following.get(lease.token)) and self._is_genuine(lease):
            with self.unchanged():
                assert state.queue.fail(lease, error_class, "no", self.story.cost) == said
        else:
            with self.refused(lease):
                # no two are alike: what fails alike everywhere would suspend the model
                answer = state.queue.fail(lease, error_class, "x" * lease.task, self.story.cost)
                assert answer == self._ended_badly(entry, lease, error_class)
                self.following[lease.token] = answer

    def release(self, lease: Lease, by: int | None = None) -> None:
        with self.refused(lease):
            self._hand(lease, by).queue.release(lease, "not ready")
            self._end(self.tasks[lease.task], "cancelled", "released")

    def hand_back(self, lease: Lease, by: int | None = None) -> None:
        with self.refused(lease):
            self._hand(lease, by).queue.hand_back(lease, "the worker stops")
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
            completed = self.story.state.attempts.completed(lease)
        known = self.stored.get(lease.token) if self._is_genuine(lease) else None
        assert (completed and (completed.outcome, completed.snapshot)) == known

    def _allow(self) -> None:
        self.story.execute("update model set retries = %s, max_inflight = %s", RETRIES, MAX_INFLIGHT)

    def _hand(self, lease: Lease, by: int | None) -> State:
        """The connection of the worker that has the lease, or of anybody."""
        names = [worker.name for worker in self.workers]
        return self.workers[names.index(lease.worker) if by is None else by % len(names)].state

    def _publish_in_vain(self, state: State, lease: Lease, how: How) -> None:
        try:
            with state.attempts.publishing(lease) as publication:
                if how == "crash":
                    commit = self._commit(lease, self.builds[lease.generation], lease.epoch)
                    publication.record(commit, self.story.cost, "interval", ())
                    raise Crash
        except Crash:
            return

    def _commit(self, lease: Lease, build: Build, epoch: int, *, adopted: bool = False) -> Commit:
        chunks = tuple(ChunkResult(chunk, 1, True) for chunk in lease.order.chunks)
        return Commit(build.snapshot + 1, chunks, _frontier(lease), epoch, written=True, adopted=adopted)


def again(act: Callable[[], T]) -> T:
    """A lost connection is noticed by the first statement; the second has a new one."""
    try:
        return act()
    except StateError:
        return act()


def _frontier(lease: Lease) -> Frontier:
    """Marks of these trials carry no snapshot: what was read does not matter."""
    return {"raw.events" if lease.order.model == "core.a" else "core.a": Pin("somewhere", 1)}


def mixed(lease: Lease, other: Lease) -> Lease:
    """A lease that was never given: the attempt of one with the token of another."""
    return replace(lease, token=other.token)
