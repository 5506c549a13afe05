"""Threads that observe sources while planning goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Semaphore
from typing import TypeVar

from penstock.engine.log.newer_commits import CommitFile
from penstock.engine.observe.source_log import SourceLog, source_log
from penstock.errors import PenstockError
from penstock.planner.policy.watching import POLL_SECONDS, poll_seconds
from penstock.runtime.observe.audit import (
    STILL_LOOKING,
    Audited,
    AuditState,
    Eviction,
    OwnTable,
    audit_table,
    evicted,
    look_or_error,
    own_tables,
    staged_or_error,
)
from penstock.runtime.observe.sources import THREADS, Observer, Seen, SourceObservation, by_log, scan_periods, unknown
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.process.containment import contained
from penstock.runtime.process.pool import Pool
from penstock.values.changes import UNCHANGED
from penstock.values.models import Source
from penstock.values.records import StateView

LOOK_SECONDS = 10.0
"""Then others have their turn; what was seen is kept."""
AUDITORS, AUDIT_BATCH = 4, 512
"""Threads for our own tables, and how many tables a round asks them for."""
HANGING_SECONDS = 40.0
"""A thread that waits longer for an answer is replaced by another one."""
CHANGED_LOOK_SECONDS = 0.5
"""Where a poll saw a newer commit, a look may follow this soon after the last one."""
_GRACE_SECONDS = 0.1
"""A look at a table nearby is over by then: what it saw is planned in the same round."""


class _Act(Enum):
    LOOK = auto()
    POLL = auto()
    AUDIT = auto()
    EVICT = auto()


_Key = tuple[_Act, str]
"""What a thread does, and to which model."""
_Conclude = Callable[[], Eviction | str | None]
"""Decides what follows from what a thread saw; not for the thread to do."""
T = TypeVar("T", OwnTable, Eviction)


@dataclass(slots=True)
class _Watched:
    """A log between two looks."""

    log: SourceLog
    location: str
    storage: Mapping[str, str] | None
    scan_seconds: float
    snapshot: int
    table_id: str | None
    moved: float
    """When it was last seen to go on, by this process's clock."""
    due: float
    mark: CommitFile | None = None
    """Of the snapshot's commit, once a look has found that table at that snapshot with it."""
    marked: float = 0.0
    changed: bool = False

    def rests(self, now: float) -> bool:
        """Nothing is to be seen: the table is the one that is known, and has no newer commit."""
        return self.mark is not None and not self.changed and now - self.marked < self.scan_seconds + LOOK_SECONDS


@dataclass(slots=True)
class BackgroundWatcher:
    """A source watcher with a few threads: one at a time per source; the scheduler takes what they have seen.

    Between looks the logs are polled, which costs next to nothing; only what moved is looked at.
    """

    environ: Mapping[str, str]
    wake: Callable[[], None]
    _pool: Pool[_Key] = field(default_factory=lambda: Pool(THREADS, HANGING_SECONDS))
    _auditors: Pool[_Key] = field(default_factory=lambda: Pool(AUDITORS, HANGING_SECONDS))
    _seen: SimpleQueue[Seen | BaseException] = field(default_factory=SimpleQueue)
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _unfinished: set[str] = field(default_factory=set)
    """Sources whose last look was not long enough."""
    _audits: SimpleQueue[tuple[_Key, _Conclude]] = field(default_factory=SimpleQueue)
    """What was seen of our own tables in this audit: an earlier one has left nothing here."""

    def periods(self, resolver: TableResolver, view: StateView) -> dict[str, float]:
        """How soon after the last look each source may be looked at again; not those at rest, or under way."""
        self._follow(resolver, view)
        periods, now = scan_periods(resolver), time.monotonic()
        for name, watched in self._watched.items():
            if watched.changed or name in self._unfinished:
                periods[name] = min(periods[name], 0.0 if name in self._unfinished else CHANGED_LOOK_SECONDS)
            elif watched.rests(now) and view.sources[name].error is None:
                del periods[name]
        return {name: seconds for name, seconds in periods.items() if not self._pool.busy((_Act.LOOK, name))}

    def look(self, resolver: TableResolver, names: Collection[str], view: StateView) -> Iterator[Seen]:
        """Begin to look at these sources; what was seen meanwhile, of these or others."""
        observer = Observer(resolver, None, self.environ, runs_programs=False)
        for name in sorted(names):
            self._unfinished.discard(name)
            self._pool.begin((_Act.LOOK, name), lambda name=name: self._look(observer, name, view))  # type: ignore[misc]
        yield from self._hanging(resolver, view)
        until = time.monotonic() + (_GRACE_SECONDS if names else 0.0)
        while True:
            try:
                seen = self._seen.get(timeout=max(until - time.monotonic(), 0.0))
            except Empty:
                return
            if isinstance(seen, BaseException):
                raise seen
            if isinstance(seen, SourceObservation) and seen.has_newer:
                self._unfinished.add(seen.record.model)
            yield seen
            if not any(self._pool.busy((_Act.LOOK, name)) for name in names):
                until = 0.0

    def audit(self, resolver: TableResolver, state: AuditState, view: StateView) -> Iterator[Audited]:
        """Threads read and write our own tables; what follows is decided by whoever asks."""
        self._audits = SimpleQueue()
        tables = own_tables(resolver, state.views, view)
        free = (table for table in tables if not self._auditors.busy((_Act.AUDIT, table.name)))
        while batch := tuple(islice(free, AUDIT_BATCH)):
            yield from self._audit_batch(resolver, state, batch)

    def _audit_batch(self, resolver: TableResolver, state: AuditState, batch: Sequence[OwnTable]) -> Iterator[Audited]:
        def look(table: OwnTable) -> _Conclude:
            return partial(audit_table, resolver, state, table, look_or_error(resolver, table))

        def stage(eviction: Eviction) -> _Conclude:
            return partial(evicted, resolver, state.generations, eviction, staged_or_error(resolver, eviction))

        awaited = self._begin(_Act.AUDIT, batch, look)
        while awaited:
            try:
                key, conclude = self._audits.get_nowait()
            except Empty:
                yield STILL_LOOKING
                continue
            if key not in awaited:
                continue
            awaited.remove(key)
            outcome = conclude()
            if isinstance(outcome, Eviction):
                awaited |= self._begin(_Act.EVICT, [outcome], stage)
            else:
                yield outcome

    def _begin(self, act: _Act, subjects: Sequence[T], ask: Callable[[T], _Conclude]) -> set[_Key]:
        """Ask about each beside the others; whoever waits for the answers is woken by the last one."""
        answers, others = self._audits, Semaphore(len(subjects) - 1)

        def answer(key: _Key, subject: T) -> None:
            answers.put((key, ask(subject)))
            if not others.acquire(blocking=False):
                self.wake()

        asked = {(act, subject.name): subject for subject in subjects}
        for key, subject in asked.items():
            self._auditors.begin(key, partial(answer, key, subject))
        return set(asked)

    def poll(self) -> float:
        """Poll every log that is due; in how many seconds the next one is."""
        now = time.monotonic()
        watched_logs = dict(self._watched)
        for name, watched in watched_logs.items():
            if watched.due <= now and not self._pool.busy((_Act.LOOK, name)):
                watched.due = now + poll_seconds(now - watched.moved, watched.scan_seconds)
                self._pool.begin((_Act.POLL, name), lambda watched=watched: self._poll(watched))  # type: ignore[misc]
        later = min((watched.due for watched in watched_logs.values()), default=now + POLL_SECONDS)
        return min(max(later - now, POLL_SECONDS / 10), POLL_SECONDS)

    def _poll(self, watched: _Watched) -> None:
        now = time.monotonic()
        try:
            changed = watched.log.goes_on(watched.location, watched.snapshot, watched.storage)
            if not changed and watched.mark is not None and now - watched.marked >= watched.scan_seconds:
                changed = watched.log.mark(watched.location, watched.snapshot, watched.storage) != watched.mark
                watched.marked = now
        except BaseException as error:
            contained(error, location=watched.location)
            watched.mark = None  # the next look says what is wrong
            return
        if changed and not watched.changed:
            watched.changed = True
            self.wake()

    def _follow(self, resolver: TableResolver, view: StateView) -> None:
        """Poll the logs that are known, from the snapshots on that are known."""
        now, storage = time.monotonic(), resolver.storage
        followed: dict[str, _Watched] = {}
        for source in resolver.graph.models.values():
            record = view.sources.get(source.name)
            if not isinstance(source, Source) or not by_log(source) or record is None or record.snapshot is None:
                continue
            place, before = resolver.source(source), self._watched.get(source.name)
            if before is not None and (before.snapshot, before.table_id) == (record.snapshot, record.table_id):
                followed[source.name] = before
                continue
            period = float(source.incremental_scan_seconds)
            due = now + POLL_SECONDS
            log = source_log(source.format)
            followed[source.name] = _Watched(log, place, storage, period, record.snapshot, record.table_id, now, due)
        self._watched = followed

    def _look(self, observer: Observer, name: str, view: StateView) -> None:
        watched = self._watched.get(name)
        last: Seen | None = None
        try:
            before = _mark(watched)
            for last in observer.look((name,), view, LOOK_SECONDS):
                self._seen.put(last)
        except BaseException as error:  # a bug: whoever plans raises it
            self._seen.put(error)
            return
        finally:
            self.wake()
        if watched is None:
            return
        watched.changed = False
        if (
            isinstance(last, SourceObservation)
            and last.record.error is None
            and last.record.snapshot == watched.snapshot
        ):
            # it was this file before the look, and the look found this snapshot: they belong together
            watched.mark, watched.marked = before, time.monotonic()

    def _hanging(self, resolver: TableResolver, view: StateView) -> Iterator[SourceObservation]:
        """Sources that do not answer; each is reported once."""
        for key in self._auditors.hanging():
            said = f"{key[1]}: its table has not answered for {HANGING_SECONDS:.0f} seconds"
            self._audits.put((key, partial(str, said)))
        for name in {name for _, name in self._pool.hanging()}:
            source = resolver.graph.models.get(name)
            if isinstance(source, Source):
                known = view.sources.get(name) or unknown(source)
                said = f"{source.location} has not answered for {HANGING_SECONDS:.0f} seconds"
                yield SourceObservation(known, replace(known, error=said), UNCHANGED)


@contextmanager
def polling(watcher: BackgroundWatcher) -> Iterator[None]:
    """Glance, in a thread that only ever begins it."""
    ended = threading.Event()

    def act() -> None:
        while not ended.wait(watcher.poll()):
            continue

    thread = threading.Thread(target=act, name="penstock-polls", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _mark(watched: _Watched | None) -> CommitFile | None:
    try:
        return None if watched is None else watched.log.mark(watched.location, watched.snapshot, watched.storage)
    except PenstockError:
        return None
