"""Why is something computed again, and since when?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from penstock.state.database.connection import Database
from penstock.state.progress import row_counts
from penstock.state.progress.row_counts import StoredCounts
from penstock.values.changes import rows_within
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, IntervalSet
from penstock.values.records import Cause, Generation, Reopened, ReopeningRecord


@dataclass(frozen=True, slots=True)
class _Since:
    generation: int
    since: datetime
    latest: datetime
    gathers: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """One invalidation, what it asked of one generation, and how far that reads the changed input."""

    id: int
    model: str
    cause: Cause
    reason: str
    actor: str
    snapshot: int | None
    row_counts: StoredCounts
    changed: IntervalSet
    ranges: IntervalSet
    remaining: IntervalSet
    before_pos: int
    after_pos: int
    created_at: datetime
    closed_at: datetime | None
    row_filter: str | None

    def within(self, scope: IntervalSet) -> ReopeningRecord:
        read = IntervalSet.of(
            (max(part.start - self.before_pos, MIN_POSITION), min(part.end + self.after_pos, MAX_POSITION))
            for part in scope
        )
        return ReopeningRecord(
            self.id,
            self.model,
            self.cause,
            self.reason,
            self.actor,
            self.snapshot,
            rows_within(row_counts.loaded(self.row_counts), self.changed, read),
            self.ranges & scope,
            self.remaining & scope,
            self.created_at,
            self.closed_at,
            self.row_filter,
        )


@dataclass(frozen=True, slots=True)
class Reopenings:
    _database: Database

    def newest(self, generation: int, scope: IntervalSet, limit: int = 20) -> tuple[ReopeningRecord, ...]:
        """What asked for positions of `scope` again, newest first."""
        rows = self._database.rows("reopenings", _Row, generation=generation, scope=scope, most=limit)
        return tuple(row.within(scope) for row in rows)

    def since(self, generation: int, scope: IntervalSet) -> Reopened | None:
        """Since when some of `scope` is to be computed again; None when none of it is stale."""
        waiting = self._database.row("reopened_in", _Since, generation=generation, scope=scope)
        return None if waiting is None else Reopened(waiting.since, waiting.gathers, waiting.latest)


def reopened(database: Database, generations: Iterable[Generation]) -> dict[str, Reopened]:
    """By model, for those that hold something stale: since when, and whether more of it may be about to come."""
    stale = {generation.no: generation.model for generation in generations if generation.stale}
    if not stale:
        return {}
    rows = database.rows("state_reopened", _Since, generations=sorted(stale))
    return {stale[row.generation]: Reopened(row.since, row.gathers, row.latest) for row in rows}
