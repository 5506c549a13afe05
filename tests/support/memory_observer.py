"""What does a scheduler see of tables that live in memory?"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from memory_engine import MemoryEngine
from memory_tables import MemorySnapshot

from penstock.engine.observe.bounds import Bounds, complete_bounds, merged_bounds
from penstock.planner.change.source_changes import SourceChanges, classified
from penstock.runtime.observe.audit import AuditState
from penstock.runtime.observe.sources import SourceObservation, completeness, scan_periods
from penstock.runtime.place.table_resolver import TableResolver
from penstock.values.changes import UNCHANGED, Changed, CommitChanges, LogChanges
from penstock.values.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, IntervalSet
from penstock.values.models import IntervalModel, Source
from penstock.values.records import Generation, SourceRecord, StateView


@dataclass(frozen=True, slots=True)
class MemoryObserver:
    """Stands in for the watcher that reads Delta logs."""

    engine: MemoryEngine
    late_only: bool = True
    """Rows above everything ever seen are new, not changed; consumers of an optional input are marked all the same."""

    def periods(self, resolver: TableResolver, view: StateView) -> dict[str, float]:
        return scan_periods(resolver)

    def look(self, resolver: TableResolver, names: Collection[str], view: StateView) -> Iterator[SourceObservation]:
        for name in sorted(names):
            source = resolver.graph.models.get(name)
            if isinstance(source, Source):
                known = view.sources.get(name) or unknown(name)
                yield SourceObservation(known, *self.observe(resolver, source, known, view.at))

    def observe(
        self, resolver: TableResolver, source: Source, known: SourceRecord, now: datetime
    ) -> tuple[SourceRecord, Changed]:
        """The source as it is now, and where rows are no longer what they were when it was last seen."""
        location = resolver.source(source)
        if not self.engine.exists(location):
            return replace(known, error=f"there is no table at {location}"), UNCHANGED
        head, table_id = self.engine.snapshot(location), self.engine.table_id(location)
        if head.version == known.snapshot and table_id == known.table_id:
            return replace(known, observed_at=now, error=None), UNCHANGED
        bounds = Bounds(None, None)
        if source.position is not None:
            bounds = merged_bounds(None, complete_bounds(head.low, head.high, completeness(source)), "full")
        record = replace(
            known,
            table_id=table_id,
            snapshot=head.version,
            schema_hash=hashlib.sha256(repr(head.columns).encode()).hexdigest()[:16],
            columns=dict.fromkeys(head.columns, "long"),
            min_pos=bounds.min_pos,
            end_pos=bounds.end_pos,
            bytes=head.rows * len(head.columns) * 8,
            rows=head.rows,
            observed_at=now,
            error=None,
        )
        if known.table_id is not None and known.table_id != table_id:
            return replace(record, expired_pos=None), Changed(EVERYTHING)
        if known.snapshot is None:
            return record, UNCHANGED
        noticed = self._noticed(location, known, known.snapshot, head)
        return replace(record, expired_pos=noticed.expired_pos), noticed.changed

    def _noticed(self, location: str, known: SourceRecord, after: int, head: MemorySnapshot) -> SourceChanges:
        snapshots = self.engine.snapshots(location)[: head.version + 1]
        # the highest end there ever was, not the last one: consumers may have covered what has left since
        reach = snapshots[after].reach if self.late_only else MAX_POSITION
        commits = [_commit(snapshot, reach) for snapshot in snapshots[after + 1 :]]
        return classified(
            LogChanges(tuple(commit for commit in commits if commit.changed)), known.expired_pos, EVERYTHING
        )

    def audit(self, resolver: TableResolver, state: AuditState, view: StateView) -> tuple[str, ...]:
        """Judge the commits in our tables that no accepted task made, by the rules of the real audit."""
        for name, generation in view.working.items():
            model = resolver.graph.models.get(name)
            if isinstance(model, IntervalModel) and generation.accepted_snapshot is not None:
                self._audit(resolver, state, generation, generation.accepted_snapshot)
        return ()

    def _audit(self, resolver: TableResolver, state: AuditState, generation: Generation, accepted: int) -> None:
        location = resolver.table(generation.location)
        if not self.engine.exists(location) or self.engine.snapshot(location).version < accepted:
            state.invalidations.invalidate(
                generation.model, generation.covered, "the table is gone", "audit", rows_unknown=True, cause="audit"
            )
            state.generations.forget_table(generation.no, generation.accepted_snapshot or 0)
            return
        latest, audited = self.engine.snapshot(location).version, generation.audited_snapshot
        if latest == accepted == audited:
            return
        after = accepted if audited is None else audited
        snapshots = [
            snapshot for snapshot in self.engine.snapshots(location)[after + 1 : latest + 1] if _judgeable(snapshot)
        ]
        owned = state.generations.owned(
            [snapshot.entry.task for snapshot in snapshots if snapshot.entry.task is not None]
        )
        foreign = [
            snapshot for snapshot in snapshots if snapshot.entry.task is None or snapshot.entry.task not in owned
        ]
        for snapshot in foreign:
            if scope := _scope(snapshot) & generation.covered:
                key = f"foreign:{self.engine.table_id(location)}:{snapshot.version}:{scope}"
                word = snapshot.entry.operation
                state.invalidations.invalidate(
                    generation.model, scope, word, "audit", key=key, rows_unknown=True, cause="audit"
                )
        if not snapshots and accepted < latest:
            state.generations.accept_snapshot(generation.no, accepted, latest)
            return
        pending = [
            snapshot.version
            for snapshot in snapshots
            if snapshot.entry.task is not None and owned.get(snapshot.entry.task) is False
        ]
        if not pending or latest == accepted:
            state.generations.audited(generation, min([latest + 1, *pending]) - 1)


def unknown(name: str) -> SourceRecord:
    """A source that nobody has looked at yet."""
    return SourceRecord(name, None, None, None, {}, None, None, None, None, None, None, None, None)


def _commit(snapshot: MemorySnapshot, reach: int) -> CommitChanges:
    if snapshot.expired:
        return CommitChanges(Changed(snapshot.expired), only_deletes=True, taken=snapshot.expired, first=snapshot.low)
    return CommitChanges(Changed(snapshot.changed.within(MIN_POSITION, reach)))


def _judgeable(snapshot: MemorySnapshot) -> bool:
    """Whether a commit may have changed rows: those that make room or only arrange rows anew do not."""
    return snapshot.entry.task is not None or bool(_scope(snapshot))


def _scope(snapshot: MemorySnapshot) -> IntervalSet:
    if snapshot.entry.commit is not None:
        return IntervalSet.of(chunk.interval for chunk in snapshot.entry.commit.chunks)
    return snapshot.changed | snapshot.expired
