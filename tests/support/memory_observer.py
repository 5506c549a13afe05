"""What does a scheduler see of tables that live in memory?"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from memory_engine import MemoryEngine
from memory_tables import MemorySnapshot

from penstock.engine.observe import Bounds, complete_bounds, merged_bounds
from penstock.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet
from penstock.models import IntervalModel, Source
from penstock.runtime.observing import completeness
from penstock.runtime.site import Site
from penstock.state.records import Generation, SourceRecord, World
from penstock.state.store import State


@dataclass(frozen=True, slots=True)
class MemoryObserver:
    """Stands in for the eyes that read Delta logs."""

    engine: MemoryEngine
    late_only: bool = True
    """Rows above everything ever seen are news, not changes; an optional input needs to hear of them all the same."""

    def look(self, site: Site, names: Collection[str], world: World) -> Iterator[tuple[SourceRecord, IntervalSet]]:
        for name in sorted(names):
            source = site.graph.models.get(name)
            if isinstance(source, Source):
                yield self.observe(site, source, world.sources.get(name) or unknown(name), world.at)

    def observe(
        self, site: Site, source: Source, known: SourceRecord, now: datetime
    ) -> tuple[SourceRecord, IntervalSet]:
        """The source as it is now, and where rows are no longer what they were when it was last seen."""
        location = site.source(source)
        if not self.engine.exists(location):
            return replace(known, error=f"there is no table at {location}"), NOTHING
        head, table_id = self.engine.snapshot(location), self.engine.table_id(location)
        if head.version == known.snapshot and table_id == known.table_id:
            return replace(known, observed_at=now, error=None), NOTHING
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
        return record, self._changed(location, known, record)

    def _changed(self, location: str, known: SourceRecord, record: SourceRecord) -> IntervalSet:
        if known.table_id is not None and known.table_id != record.table_id:
            return EVERYTHING
        if known.snapshot is None:
            return NOTHING
        snapshots = self.engine.snapshots(location)[: (record.snapshot or 0) + 1]
        changed = NOTHING
        for snapshot in snapshots[known.snapshot + 1 :]:
            changed |= snapshot.changed
        # the highest end there ever was, not the last one: consumers may have covered what has left since
        reach = snapshots[known.snapshot].reach
        return changed.within(MIN_POSITION, reach) if self.late_only else changed

    def audit(self, site: Site, state: State, world: World) -> tuple[str, ...]:
        """Judge the commits in our tables that no accepted task made, by the rules of the real audit."""
        for name, generation in world.working.items():
            model = site.graph.models.get(name)
            if isinstance(model, IntervalModel) and generation.accepted_snapshot is not None:
                self._audit(site, state, generation, generation.accepted_snapshot)
        return ()

    def _audit(self, site: Site, state: State, generation: Generation, accepted: int) -> None:
        location = site.table(generation.location)
        if not self.engine.exists(location) or self.engine.snapshot(location).version < accepted:
            state.invalidate(generation.model, generation.covered, "the table is gone", "audit", rows_unknown=True)
            state.forget_table(generation.no, generation.accepted_snapshot or 0)
            return
        latest, audited = self.engine.snapshot(location).version, generation.audited_snapshot
        if latest == accepted == audited:
            return
        after = accepted if audited is None else audited
        found = [one for one in self.engine.snapshots(location)[after + 1 : latest + 1] if _judgeable(one)]
        owned = state.owned([one.entry.task for one in found if one.entry.task is not None])
        foreign = [one for one in found if one.entry.task is None or one.entry.task not in owned]
        for one in foreign:
            if scope := _scope(one) & generation.covered:
                key = f"foreign:{self.engine.table_id(location)}:{one.version}"
                state.invalidate(generation.model, scope, one.entry.operation, "audit", key=key, rows_unknown=True)
        if not found and accepted < latest:
            state.accept_snapshot(generation.no, accepted, latest)
        elif len(foreign) == len(found) or latest == accepted:
            state.judged(generation.no, latest)


def unknown(name: str) -> SourceRecord:
    """A source that nobody has looked at yet."""
    return SourceRecord(name, None, None, None, {}, None, None, None, None, None, None, None, None)


def _judgeable(snapshot: MemorySnapshot) -> bool:
    """Whether a commit may have changed rows: those that make room or only arrange rows anew do not."""
    return snapshot.entry.task is not None or bool(_scope(snapshot))


def _scope(snapshot: MemorySnapshot) -> IntervalSet:
    if snapshot.entry.commit is not None:
        return IntervalSet.of(chunk.interval for chunk in snapshot.entry.commit.chunks)
    return snapshot.changed | snapshot.expired
