"""What do the sources hold now?"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

from penstock.engine.observe.bounds import (
    Bounds,
    Completeness,
    FeatureUnsupported,
    TableMissing,
    complete_bounds,
    merged_bounds,
)
from penstock.engine.observe.source_log import source_log
from penstock.engine.values.column_types import column_type
from penstock.engine.values.files import PositionColumn
from penstock.errors import SourceError
from penstock.planner.change.source_changes import (
    SourceChanges,
    classified,
    consumed,
    is_of_interest,
    lowered,
    newest,
    replaced,
)
from penstock.planner.policy.watching import FIRST_SLICE, next_slice
from penstock.project import Project, ScanContext, render_bounds
from penstock.runtime.place.table_resolver import TableResolver, position_column
from penstock.runtime.process.containment import contained
from penstock.runtime.process.logs import log
from penstock.state.sources import Sources
from penstock.values.changes import UNCHANGED, Changed
from penstock.values.intervals import EVERYTHING, IntervalSet
from penstock.values.models import Source
from penstock.values.models.axis import SECOND
from penstock.values.models.source_format import SourceFormat
from penstock.values.records import SourceRecord, StateView

if TYPE_CHECKING:
    from penstock.engine.spark.delta_through_spark import SparkTableState
    from penstock.values.changes import LogChanges

Scan = Literal["full", "incremental"]
_SHOWN_OUTPUT = 300

THREADS = 8
"""So many sources are looked at side by side."""


class Scanner(Protocol):
    """What observing asks of Spark, for sources whose log does not tell."""

    def scan_bounds(
        self,
        location: str,
        source_format: SourceFormat,
        position: PositionColumn,
        *,
        snapshot: int | None,
        sql: str | None,
    ) -> tuple[int | None, int | None]: ...

    def foreign_seen(self, location: str, position: PositionColumn | None) -> SparkTableState: ...

    def foreign_changes(
        self, location: str, position: PositionColumn, after: int, upto: int, first: int | None
    ) -> LogChanges: ...


@dataclass(frozen=True, slots=True)
class SourceObservation:
    """What a look has seen of a source, up to one snapshot."""

    known: SourceRecord
    """What was known before."""
    record: SourceRecord
    changed: Changed
    """Where rows are no longer what they were then."""
    has_newer: bool = False
    """There are newer snapshots: a look goes from slice to slice, and each is worth keeping."""


@dataclass(frozen=True, slots=True)
class NeedsSpark:
    """No log says what this source holds, and this process may not use Spark."""

    model: str


Seen = SourceObservation | NeedsSpark


class _SparkOnlyError(Exception):
    """Why a look ends without an observation."""


def scan_periods(resolver: TableResolver) -> dict[str, float]:
    """How often each source is to be looked at, in seconds."""
    return {source.name: float(source.incremental_scan_seconds) for source in resolver.graph.sources}


@dataclass(frozen=True, slots=True)
class Observer:
    """Looks at sources; what it sees is the caller's to keep."""

    resolver: TableResolver
    scanner: Scanner | None
    """None: nothing may start Spark; sources that need a scan now are left out."""
    environ: Mapping[str, str]
    runs_programs: bool = True
    """False: sources with a program are left out, like those that need a scan."""

    def look(self, names: Collection[str], view: StateView, seconds: float = math.inf) -> Iterator[Seen]:
        """The named sources as they are now, and where their rows are no longer what they were.

        One that cannot be read keeps its old bounds, and says why. A long log is walked in slices, and left where it is
        after so many seconds: the next look goes on there.
        """
        for name in sorted(names):
            source = self.resolver.graph.models.get(name)
            if isinstance(source, Source):
                try:
                    yield from self._slices(source, view.sources.get(name) or unknown(source), view, seconds)
                except _SparkOnlyError:
                    yield NeedsSpark(name)

    def _slices(
        self, source: Source, known: SourceRecord, view: StateView, seconds: float
    ) -> Iterator[SourceObservation]:
        most, until = FIRST_SLICE, time.monotonic() + seconds
        while True:
            began = time.monotonic()
            observation = self._observe(source, known, view, most)
            yield observation
            now = time.monotonic()
            if not observation.has_newer or now >= until:
                return
            known, most = observation.record, next_slice(most, now - began)

    def _observe(self, source: Source, known: SourceRecord, view: StateView, most: int) -> SourceObservation:
        unfinished = False
        try:
            if by_log(source):
                record, unfinished = self._from_log(source, known, view.at, most)
            else:
                record = self._by_scan(source, known, view.at)
            if record is None:
                return SourceObservation(known, known, UNCHANGED)
            changes = self._noticed(source, known, record, view)
        except _SparkOnlyError:
            raise
        except BaseException as error:
            # a snapshot is never kept without what changed up to it
            return SourceObservation(
                known, replace(known, error=contained(error, source=source.name).message), UNCHANGED
            )
        record = replace(record, observed_at=view.at, error=None, expired_pos=changes.expired_pos)
        if changes.ignored:
            record = _with_ignored(record, changes.ignored_rows, view.at)
        elif changes.expired_pos is None:
            record = replace(record, ignored_rows=None, ignored_since=None)
        return SourceObservation(known, record, changes.changed, unfinished)

    def _noticed(self, source: Source, known: SourceRecord, record: SourceRecord, view: StateView) -> SourceChanges:
        """Where rows are no longer what they were when the source was last seen."""
        graph = self.resolver.graph
        if known.observed_at is None or not is_of_interest(source, graph):
            return SourceChanges(UNCHANGED, known.expired_pos)
        if replaced(known, record):
            return SourceChanges(Changed(EVERYTHING), None)
        if not source.format.has_log:
            length = source.recheck if record.full_scan_at != known.full_scan_at else None
            return SourceChanges(newest(source, graph, view, length or 0), known.expired_pos)
        if known.snapshot is None or record.snapshot is None or known.snapshot == record.snapshot:
            return SourceChanges(UNCHANGED, known.expired_pos)
        return self._between(source, known.snapshot, record, view)

    def _between(self, source: Source, after: int, record: SourceRecord, view: StateView) -> SourceChanges:
        assert record.snapshot is not None  # noqa: S101
        location, column = self.resolver.source(source), position_column(source)
        if record.only_spark is not None:
            return self._fed(source, after, record, view)
        read = consumed(source, self.resolver.graph, view)
        changes = source_log(source.format).changes(
            location, column, after, record.snapshot, consumed=read, storage=self.resolver.storage
        )
        return classified(changes, record.expired_pos, read)

    def _fed(self, source: Source, after: int, record: SourceRecord, view: StateView) -> SourceChanges:
        """The same by the change feed of a table that only Spark can read; without one it is unknown."""
        column, graph = position_column(source), self.resolver.graph
        assert record.snapshot is not None and self.scanner is not None  # noqa: S101
        read = consumed(source, graph, view)
        expired_pos = self._still_expired(source, after, record, read)
        if column is not None and record.change_feed:
            location, first = self.resolver.source(source), record.min_pos
            try:
                changes = self.scanner.foreign_changes(location, column, after, record.snapshot, first)
            except SourceError as error:  # the feed was off for a while, or its files are gone
                log("change_feed_failed", "warning", model=source.name, error=error.message)
            else:
                return classified(changes, expired_pos, read)
        if source.recheck is not None:
            return SourceChanges(newest(source, graph, view, source.recheck), expired_pos)
        return SourceChanges(Changed(EVERYTHING), expired_pos)

    def _still_expired(self, source: Source, after: int, record: SourceRecord, read: IntervalSet) -> int | None:
        """What has expired, unless a RESTORE or an overwrite may have brought rows back: the log shows them."""
        first, upto = record.min_pos, record.snapshot or 0
        if record.expired_pos is None or first is None or first >= record.expired_pos:
            return record.expired_pos
        back = source_log(source.format).rewinds(self.resolver.source(source), after, upto, self.resolver.storage)
        return lowered(record.expired_pos, first, read) if back else record.expired_pos

    def _from_log(
        self, source: Source, known: SourceRecord, now: datetime, most: int
    ) -> tuple[SourceRecord | None, bool]:
        """The source at most so many commits after what is known, and whether there are more."""
        location, column = self.resolver.source(source), position_column(source)
        try:
            seen = source_log(source.format).observe(
                location,
                column,
                completeness(source),
                known.snapshot if known.observed_at else None,
                self.resolver.storage,
                previous_table_id=known.table_id,
                most_commits=most if is_of_interest(source, self.resolver.graph) else None,
            )
        except FeatureUnsupported as error:
            return self._through_spark(source, known, now, error.why), False
        except TableMissing:
            raise SourceError(f"there is no table at {source.location}") from None
        if seen is None:
            return replace(known, only_spark=None, change_feed=None), False
        if column is not None and not source.axis_declared:
            _refuse_plain_numbers(source, seen.columns)
        record = replace(
            known,
            table_id=seen.table_id,
            snapshot=seen.snapshot,
            schema_hash=seen.schema_hash,
            columns=seen.columns,
            min_pos=seen.min_pos,
            end_pos=seen.end_pos,
            bytes=seen.bytes,
            rows=seen.rows,
            only_spark=None,
            change_feed=None,
        )
        if not seen.needs_scan or column is None:
            return record, seen.has_newer
        if self.scanner is None:
            raise _SparkOnlyError
        extremes = self.scanner.scan_bounds(location, source.format, column, snapshot=seen.snapshot, sql=None)
        merged = merged_bounds(None, complete_bounds(*extremes, completeness(source)), "full")
        return replace(record, min_pos=merged.min_pos, end_pos=merged.end_pos), seen.has_newer

    def _through_spark(self, source: Source, known: SourceRecord, now: datetime, why: str) -> SourceRecord:
        """A table whose log only Spark can read; that it has no newer commit is seen without."""
        location, column = self.resolver.source(source), position_column(source)
        watched = known.only_spark is not None and known.snapshot is not None and not _full_is_due(source, known, now)
        if watched and not source_log(source.format).goes_on(location, known.snapshot or 0, self.resolver.storage):
            return known
        if self.scanner is None:
            raise _SparkOnlyError
        seen = self.scanner.foreign_seen(location, column)
        if column is not None and not source.axis_declared:
            _refuse_plain_numbers(source, seen.columns)
        bounds = merged_bounds(None, complete_bounds(seen.low, seen.high, completeness(source)), "full")
        return replace(
            known,
            table_id=seen.table_id,
            snapshot=seen.snapshot,
            schema_hash=seen.schema_hash,
            columns=dict(seen.columns),
            min_pos=bounds.min_pos,
            end_pos=bounds.end_pos,
            bytes=seen.bytes,
            rows=None,
            full_scan_at=now,
            incremental_scan_at=now,
            only_spark=why,
            change_feed=seen.feeds,
        )

    def _by_scan(self, source: Source, known: SourceRecord, now: datetime) -> SourceRecord | None:
        column = position_column(source)
        if column is None:
            return replace(known)  # a lookup is read as it is; there is nothing to measure
        kind = _due(source, known, now)
        if kind is None:
            return None
        if self.scanner is None and not (source.exec is not None and self.runs_programs):
            raise _SparkOnlyError
        now_known = self._pinned(source, known)
        scanned = self._scanned(source, column, now_known, kind)
        merged = merged_bounds(Bounds(known.min_pos, known.end_pos), scanned, kind)
        record = replace(now_known, min_pos=merged.min_pos, end_pos=merged.end_pos, incremental_scan_at=now)
        return replace(record, full_scan_at=now) if _full_is_due(source, known, now) else record

    def _pinned(self, source: Source, known: SourceRecord) -> SourceRecord:
        """The record with the snapshot that the scan is to measure and tasks are to read, where the log tells one."""
        if not source.format.has_log or source.location is None:
            return replace(known, snapshot=None, table_id=None)
        try:
            log, location = source_log(source.format), self.resolver.source(source)
            seen = log.observe(location, None, completeness(source), None, self.resolver.storage)
        except FeatureUnsupported:
            return replace(known, snapshot=None, table_id=None)
        return known if seen is None else replace(known, snapshot=seen.snapshot, table_id=seen.table_id)

    def _scanned(self, source: Source, column: PositionColumn, known: SourceRecord, kind: Scan) -> Bounds:
        if source.exec is not None:
            return _from_program(source, self.resolver.project, self.environ)
        sql = None
        if source.bounds_sql is not None:
            from penstock.engine.spark.scan import VIEW

            last = None if known.end_pos is None else known.end_pos - (completeness(source) == "inclusive")
            context = ScanContext(kind == "full", known.min_pos, last)
            sql = render_bounds(source, self.resolver.project, context, lambda _: VIEW)
        assert self.scanner is not None  # noqa: S101
        location = self.resolver.source(source)
        extremes = self.scanner.scan_bounds(location, source.format, column, snapshot=known.snapshot, sql=sql)
        return complete_bounds(*extremes, completeness(source))


def keep(sources: Sources, observation: SourceObservation) -> None:
    """Store an observation, and tell consumers where rows are no longer what they were."""
    known, record = observation.known, observation.record
    if record.error is not None:
        sources.record_error(record.model, record.error)
    elif record != known:
        sources.record(record, known.snapshot, observation.changed, expected_table=known.table_id)


def _with_ignored(record: SourceRecord, rows: int | None, now: datetime) -> SourceRecord:
    """That so many more rows are ignored; None once the number is unknown."""
    first = record.ignored_since is None
    before = 0 if first else record.ignored_rows
    known = rows is not None and before is not None
    total = (before or 0) + (rows or 0) if known else None
    return replace(record, ignored_rows=total, ignored_since=now if first else record.ignored_since)


def _refuse_plain_numbers(source: Source, columns: Mapping[str, str]) -> None:
    """Without a word about its axis a position is a date or a time; a number could count anything."""
    kind = next((kind for name, kind in columns.items() if name.casefold() == str(source.position).casefold()), "")
    known = column_type(kind)
    if kind and (known is None or not known.is_time):
        raise SourceError(
            f"{source.name}: its position {source.position} is a {kind}, so its axis must be given",
            hint=f"add axis: block (or another name; second when it counts epoch seconds) to {source.file}",
        )


def completeness(source: Source) -> Completeness:
    return source.completeness or ("watermark" if (source.axis or SECOND) == SECOND else "inclusive")


def by_log(source: Source) -> bool:
    return source.format.has_log and source.bounds_sql is None and source.exec is None


def _due(source: Source, known: SourceRecord, now: datetime) -> Scan | None:
    """The first scan is a full one; later ones come as often as the source asks for."""
    if _full_is_due(source, known, now):
        return "full"
    last = known.incremental_scan_at or known.full_scan_at
    if last is not None and now - last < timedelta(seconds=source.incremental_scan_seconds):
        return None
    return "incremental" if source.bounds_sql is not None else "full"


def _full_is_due(source: Source, known: SourceRecord, now: datetime) -> bool:
    last = known.full_scan_at
    return last is None or now - last >= timedelta(seconds=source.full_scan_seconds)


def _from_program(source: Source, project: Project, environ: Mapping[str, str]) -> Bounds:
    """Run the source's program and read the JSON it prints."""
    assert source.exec is not None  # noqa: S101
    allowed = {name: environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in environ}
    own = {"SELF_DATABASE": source.database, "SELF_TABLE": source.table, "SELF_POSITION": source.position or ""}
    try:
        done = subprocess.run(
            source.exec,
            cwd=project.root,
            env={**allowed, **project.settings.env, **source.env, **own},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=source.timeout_seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(
            f"{source.name}: its program could not be run: {error}", hint=f"see exec in {source.file}"
        ) from error
    said = (done.stderr or done.stdout).strip()[-_SHOWN_OUTPUT:]
    if done.returncode:
        raise SourceError(f"{source.name}: its program ended with exit code {done.returncode}: {said}")
    try:
        answer = json.loads(done.stdout)
        low, high = answer["min"], answer["max"]
    except (ValueError, KeyError, TypeError):
        shown = done.stdout.strip()[-_SHOWN_OUTPUT:]
        raise SourceError(
            f'{source.name}: its program must print {{"min": …, "max": …}}, but printed {shown!r}'
        ) from None
    if not all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in (low, high)):
        raise SourceError(
            f"{source.name}: its program must print whole numbers or null, but printed {low!r} and {high!r}"
        )
    return complete_bounds(low, high, completeness(source))


def unknown(source: Source) -> SourceRecord:
    return SourceRecord(source.name, None, None, None, {}, None, None, None, None, None, None, None, None)
