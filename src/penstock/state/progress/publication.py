"""How does an attempt become accepted, exactly once?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from psycopg.types.json import Jsonb

from penstock.state.database.connection import Database, storable
from penstock.state.progress import pins
from penstock.state.progress.generations import forget
from penstock.state.progress.invalidations import (
    Invalidation,
    StaleRange,
    answer_targets,
    find_stale,
    own_change,
    store,
)
from penstock.values.intervals import EVERYTHING, IntervalSet
from penstock.values.records import GenerationHead
from penstock.values.tasks import Commit, Cost, Lease


@dataclass(slots=True)
class Publication:
    """An open transaction that holds the generation's lock and the task's row."""

    generation: GenerationHead
    _database: Database = field(repr=False)
    _lease: Lease
    recorded: bool = False

    def record(
        self,
        commit: Commit,
        cost: Cost,
        strategy: str,
        warnings: Sequence[str] = (),
        strategy_reason: str | None = None,
    ) -> None:
        """Everything that follows from the commit, in this transaction.

        An adopted commit brings the frontier and the epoch of the attempt that made it: what changed since is stale.
        """
        database, lease, done = self._database, self._lease, IntervalSet.of(chunk.interval for chunk in commit.chunks)
        if done - lease.order.scope:
            raise ValueError(f"task {lease.task} is about {lease.order.scope}, its commit about {done}")
        if self._made_anew(commit):
            self._start_over(done)
        frontier = self._write_frontier(commit)
        self._write_covers(commit, frontier)
        doubtful = self._doubtful(done)
        answer_targets(database, self.generation.no, done, commit.frontier, commit.epoch)
        self._forget_digests(self._doubtful(done))
        database.run(
            "accept_attempt",
            task=lease.task,
            attempt=lease.attempt,
            snapshot=commit.snapshot,
            strategy=strategy,
            strategy_reason=None if strategy_reason is None else storable(strategy_reason),
            metrics=Jsonb(asdict(cost)),
            warnings=Jsonb(list(warnings)),
        )
        database.run("finish_task", task=lease.task, state="succeeded")
        changed = commit.changed if self._follows(commit) else done
        self._tell(commit, changed | doubtful)
        self.recorded = True

    def _doubtful(self, done: IntervalSet) -> IntervalSet:
        """Where another program was found to have written, and nothing has been computed since."""
        doubtful = self._database.values("doubtful_ranges", IntervalSet, generation=self.generation.no, ranges=done)
        return IntervalSet.of(part for ranges in doubtful for part in ranges) & done

    def _forget_digests(self, ranges: IntervalSet) -> None:
        """What an attempt found equal, or committed, says nothing of the table after another program wrote there."""
        if ranges:
            self._database.run("forget_digests", generations=[self.generation.no], ranges=ranges)

    def _made_anew(self, commit: Commit) -> bool:
        """Snapshots only grow: one that is not above the accepted one belongs to another table in the same place.

        An adopted commit says nothing: it may have been made long before.
        """
        accepted = self.generation.accepted_snapshot
        if accepted is None or commit.adopted:
            return False
        return commit.snapshot <= accepted if commit.written else commit.snapshot < accepted

    def _follows(self, commit: Commit) -> bool:
        """Whether its rows were compared with those that consumers read.

        A commit that nobody accepted may lie between; what equals its rows may still differ from the accepted ones.
        """
        accepted = self.generation.accepted_snapshot
        return accepted is None or commit.snapshot - commit.written <= accepted

    def _start_over(self, done: IntervalSet) -> None:
        """Whatever the old table held is to be computed again, except what this commit brings."""
        no, database = self.generation.no, self._database
        if self.generation.accepted_snapshot is not None:
            forget(database, no, self.generation.accepted_snapshot)
        stale_range = find_stale(database, no, EVERYTHING, lambda _: True)
        stale_range = StaleRange(no, stale_range.old - done, stale_range.asked - done)
        reason = "its table was gone and has been made anew"
        invalidation = Invalidation(own_change(self.generation.model), stale_range.asked, reason, "penstock", "audit")
        store(database, invalidation, [stale_range])

    def _write_frontier(self, commit: Commit) -> int:
        no, lease = self.generation.no, self._lease
        database = self._database
        at = commit.moment or database.value("intent_at", datetime, task=lease.task, attempt=lease.attempt)
        database.run(
            "accept_snapshot", generation=no, snapshot=commit.snapshot, written=commit.written, data_timestamp=at
        )
        written = database.value(
            "insert_frontier",
            int,
            generation=no,
            snapshot=commit.snapshot,
            inputs=pins.stored(commit.frontier),
            data_timestamp=at,
            task=lease.task,
            attempt=lease.attempt,
        )
        assert written is not None  # noqa: S101  an insert without a condition returns its row
        return written

    def _write_covers(self, commit: Commit, frontier: int) -> None:
        digests = [chunk.digest for chunk in commit.chunks]
        self._database.run(
            "insert_covers",
            generation=self.generation.no,
            task=self._lease.task,
            attempt=self._lease.attempt,
            frontier=frontier,
            snapshot=commit.snapshot,
            ranges=[chunk.interval for chunk in commit.chunks],
            rows=[chunk.rows for chunk in commit.chunks],
            digest_rows=[digest and digest[0] for digest in digests],
            digest_a=[digest and digest[1] for digest in digests],
            digest_b=[digest and digest[2] for digest in digests],
        )

    def _tell(self, commit: Commit, changed: IntervalSet) -> None:
        if changed:
            self._database.run(
                "insert_event",
                id=f"task:{self._lease.uuid}",
                model=self.generation.model,
                generation=str(self.generation.id),
                table_id=None,
                snapshot=commit.snapshot,
                ranges=changed,
                row_counts=Jsonb([]),
            )
        self._database.run("wake")
