"""From where to where does a source hold rows, as far as its log and footers tell?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.engine.log.handle import FeatureUnsupported, SnapshotGone, TableMissing, open_table
from penstock.engine.log.storage import Storage
from penstock.engine.values.files import DataFile, PositionColumn, TableSnapshot
from penstock.engine.values.positions import position_field
from penstock.errors import EngineError, SourceError
from penstock.values.intervals import MAX_POSITION, MIN_POSITION

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from penstock.engine.rows.statistics import PositionRange

__all__ = [
    "Bounds",
    "Completeness",
    "FeatureUnsupported",
    "ScanKind",
    "SourceSeen",
    "TableMissing",
    "columns_of",
    "complete_bounds",
    "merged_bounds",
    "observe_delta",
    "schema_hash",
]

Completeness = Literal["watermark", "inclusive"]
ScanKind = Literal["full", "incremental"]
MOST_FOOTERS = 1000
"""Beyond so many files without statistics one Spark scan is quicker."""
_MOST_PROOFS = 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """Positions `min_pos <= p < end_pos` that hold rows; both None: nothing. What a scan says may be neither."""

    min_pos: int | None
    end_pos: int | None


NO_ROWS = Bounds(None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSeen:
    """A Delta source at one snapshot. Lag is not applied."""

    table_id: str
    snapshot: int
    schema_hash: str
    columns: Mapping[str, str]
    """Type by name, as Delta spells them."""
    min_pos: int | None
    end_pos: int | None
    """Exclusive, as the completeness says. Both None: no rows, or none whose position is complete."""
    bytes: int
    rows: int | None
    needs_scan: bool
    """Neither the log nor the footers tell the bounds: ask Spark."""
    has_newer: bool = False
    """There are newer snapshots than this one."""


def observe_delta(
    location: str,
    position: PositionColumn | None,
    completeness: Completeness,
    previous_version: int | None = None,
    storage: Storage | None = None,
    *,
    previous_table_id: str | None = None,
    most_commits: int | None = None,
) -> SourceSeen | None:
    """A source's newest snapshot; None when it is still the previous one (of that table id, when given).

    `most_commits`: of the same table, a snapshot at most so many commits after the previous one.
    """
    table = open_table(location, storage=storage)
    if table is None:
        raise TableMissing(location)
    newest, same = table.version(), previous_table_id in (None, str(table.metadata().id))
    if newest == previous_version and same:
        return None
    from penstock.engine.log.snapshot import read

    if most_commits is not None and previous_version is not None and same and newest > previous_version + most_commits:
        table = _earlier(location, previous_version + most_commits, storage) or table

    seen = read(table, location, position)
    bounds = None if position is None else _bounds(seen, position, completeness, storage)
    counts = [file.rows for file in seen.files]
    known = bounds or NO_ROWS
    return SourceSeen(
        table_id=seen.table_id,
        snapshot=seen.version,
        schema_hash=schema_hash(seen.schema_json),
        columns=columns_of(seen.schema_json),
        min_pos=known.min_pos,
        end_pos=known.end_pos,
        bytes=sum(file.size for file in seen.files),
        rows=None if None in counts else sum(count or 0 for count in counts),
        needs_scan=position is not None and bounds is None,
        has_newer=seen.version < newest,
    )


def _earlier(location: str, version: int, storage: Storage | None) -> DeltaTable | None:
    try:
        return open_table(location, version=version, storage=storage)
    except SnapshotGone:  # its log was cleaned: from here on only the newest can be seen
        return None


def complete_bounds(low: int | None, high: int | None, completeness: Completeness) -> Bounds:
    """Bounds of the least and greatest position there is. `watermark`: the greatest may still be filling.

    A half-known pair stays half-known, for `merged_bounds` to refuse.
    """
    return Bounds(low, high if high is None or completeness == "watermark" else high + 1)


def merged_bounds(previous: Bounds | None, scanned: Bounds, kind: ScanKind) -> Bounds:
    """The bounds after a scan: a full one says what is there, an incremental one only what is new.

    A result that cannot be is a SourceError, so that the old bounds stay.
    """
    low, end = scanned.min_pos, scanned.end_pos
    if (low is None) != (end is None):
        missing = "minimum" if low is None else "maximum"
        raise SourceError(f"the bounds scan gave no {missing} ({low}, {end})", hint="it must give both, or NULL twice")
    if low is not None and end is not None and low > end:
        raise SourceError(f"the bounds scan gave a minimum of {low} above its end {end}", hint="check the bounds query")
    if low is not None and end is not None and not MIN_POSITION < low <= end < MAX_POSITION:
        raise SourceError(
            f"the bounds scan gave {low} and {end}: positions have 64 bits", hint="check the bounds query"
        )
    old = previous or NO_ROWS
    # Equal edges: all rows stand on one position that may still be filling.
    if low is None or end is None or low == end:
        return old if kind == "incremental" else NO_ROWS
    if kind == "full" or old.min_pos is None or old.end_pos is None:
        return Bounds(low, end)
    return Bounds(min(old.min_pos, low), max(old.end_pos, end))


def schema_hash(schema_json: str) -> str:
    """Equal for equal names and types in the same order; comments and other metadata do not count."""
    return hashlib.sha256(json.dumps(list(columns_of(schema_json).items())).encode()).hexdigest()[:16]


def columns_of(schema_json: str) -> dict[str, str]:
    """Type by name, as Delta spells them."""
    fields = json.loads(schema_json)["fields"]
    return {
        f["name"]: f["type"] if isinstance(f["type"], str) else json.dumps(f["type"], sort_keys=True) for f in fields
    }


def _bounds(
    seen: TableSnapshot, position: PositionColumn, completeness: Completeness, storage: Storage | None
) -> Bounds | None:
    """The bounds of all live files; None when only Spark can find them."""
    physical = PositionColumn(position_field(seen.schema_json, position).physical, position.axis)
    filled = [file for file in seen.files if file.rows != 0 and (file.rows is None or file.nulls != file.rows)]
    silent = [file for file in filled if file.low is None or file.high is None]
    if len(silent) > MOST_FOOTERS:
        return None
    lows = [file.low for file in filled if file.low is not None and file.high is not None]
    best: int | None = None
    for file in silent:
        extent = _from_footer(seen.location, file, physical, storage)
        if extent is None:
            return None
        if extent.low is not None and extent.high is not None:
            lows.append(extent.low)
            best = extent.high if best is None else max(best, extent.high)
    bounded = [file for file in filled if file.low is not None and file.high is not None]
    high = _greatest(seen.location, bounded, best, physical, storage)
    if not lows or high is None:
        return NO_ROWS
    return merged_bounds(None, complete_bounds(min(lows), max(high, min(lows)), completeness), "full")


def _greatest(
    location: str, bounded: list[DataFile], best: int | None, physical: PositionColumn, storage: Storage | None
) -> int | None:
    """The greatest position that is certainly there.

    Statistics are milliseconds. A maximum cut down to one is in the right second; one rounded up may have left it,
    which only shows when it stands on a whole second. Then a footer decides; without one the second before is certain.
    """
    newest_first = sorted(bounded, key=lambda file: (file.high or 0, file.high_is_exact), reverse=True)
    for tried, file in enumerate(newest_first):
        if file.high is None or (best is not None and file.high <= best):
            break
        if file.high_is_exact:
            return file.high
        extent = _from_footer(location, file, physical, storage) if tried < _MOST_PROOFS else None
        certain = file.high - 1 if extent is None or extent.high is None else extent.high
        best = certain if best is None else max(best, certain)
    return best


def _from_footer(
    location: str, file: DataFile, physical: PositionColumn, storage: Storage | None
) -> PositionRange | None:
    from penstock.engine.rows.statistics import footer, position_range

    try:
        return position_range(footer(location, file.path, storage), physical)
    except (EngineError, SourceError):
        return None
