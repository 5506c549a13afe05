"""Which rows of a file do deletion vectors leave, and where does the first of all rows lie?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from penstock.engine.log.handle import UnreadableLog, open_table
from penstock.engine.observe.file_rows import LogScan, positions_by_batch, span
from penstock.engine.values.files import DataFile
from penstock.values.intervals import MAX_POSITION, MIN_POSITION

NO_MASK = pa.array([], pa.bool_())

Masks = Mapping[str, pa.BooleanArray]
"""By file with a deletion vector: which rows are there. Rows after the end are."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a file: those of the mask, and perhaps those after its end."""

    file: DataFile
    mask: pa.BooleanArray = field(default_factory=lambda: NO_MASK)
    rest: bool = True

    @property
    def is_empty(self) -> bool:
        return not self.rest and not pc.any(self.mask).as_py()

    def after(self, count: int) -> Part:
        """What is left of it behind so many rows of the file."""
        return Part(self.file, self.mask.slice(count), self.rest)

    def of(self, rows: pa.Table) -> pa.Table:
        if not len(self.mask) and self.rest:
            return rows
        return rows.filter(padded(self.mask, rows.num_rows, self.rest).slice(0, rows.num_rows))


def padded(mask: pa.BooleanArray, length: int, rest: bool) -> pa.BooleanArray:
    missing = length - len(mask)
    return pa.concat_arrays([mask, pa.repeat(pa.scalar(rest), missing)]) if missing > 0 else mask


def vectors(scan: LogScan, version: int, files: Iterable[DataFile]) -> Masks | None:
    """The rows that are there, of those of the files with a deletion vector; None when these cannot be read.

    They are kept as one bit per row, and not at all beyond what the scan may keep.
    """
    wanted = {file.path: file for file in files if file.has_deletion_vector}
    if not wanted:
        return {}
    if not scan.budget.spend(masks=sum(-(-(file.rows or 0) // 8) for file in wanted.values())):
        return None
    by_path: dict[str, pa.BooleanArray] = {}
    try:
        table = open_table(scan.location, version=version, storage=scan.storage)
        if table is None:
            return None
        root = unquote(table.table_uri).rstrip("/") + "/"
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            masks = batch.column("selection_vector")
            for at, path in enumerate(batch.column("filepath").to_pylist()):
                name = unquote(path).removeprefix(root)
                if name in wanted:
                    by_path[name] = masks[at].values
    except (DeltaError, UnreadableLog, OSError):
        return None
    return by_path


def first_position(scan: LogScan, version: int, files: Iterable[DataFile], enough: int | None = None) -> int | None:
    """The lowest position of the live rows, None without any; some lower bound is told as soon as it is `enough`.

    Of rows that cannot be looked at it is the highest position that they may begin with: who takes a correction for
    retention leaves old rows behind, who takes retention for a correction loses what cannot be made again.
    """
    certain, doubtful = [], []
    for file in files:
        reach = span(scan, file)
        if reach is None:
            continue
        if file.has_deletion_vector or reach[0] == MIN_POSITION:
            doubtful.append((reach[0], reach[1], file))
        else:
            certain.append(reach[0])
    first = min(certain, default=MAX_POSITION)
    if enough is None or first > enough:
        below = sorted((entry for entry in doubtful if entry[0] < first), key=lambda entry: entry[:2])
        masks = vectors(scan, version, [file for *_, file in below])
        for low, end, file in below:
            if low < first:
                first = min(first, _lowest(scan, file, masks, otherwise=end))
    return None if first == MAX_POSITION else first


def rows_around(scan: LogScan, parts: Iterable[Part], position: int) -> tuple[int, int] | None:
    """How many rows lie below a position, and how many do not; None when they cannot be read."""
    below = above = 0
    for part in parts:
        at = 0
        for positions in () if part.is_empty else positions_by_batch(scan, part.file):
            if positions is None:
                return None
            rest = part.after(at).of(pa.table({"position": positions}))
            at += len(positions)
            lower = pc.less(rest.column("position"), position)
            under = pc.sum(lower).as_py() or 0
            below += under
            above += pc.count(lower).as_py() - under
    return below, above


def _lowest(scan: LogScan, file: DataFile, masks: Masks | None, otherwise: int) -> int:
    """Where the rows of a file begin that are there; without any, after everything."""
    mask = NO_MASK if not file.has_deletion_vector else None if masks is None else masks.get(file.path)
    if mask is None or not (file.has_deletion_vector or scan.budget.spend(rows=file.rows or 0)):
        return otherwise
    lowest, at = MAX_POSITION, 0
    for positions in positions_by_batch(scan, file):
        if positions is None:
            return otherwise
        there = Part(file, mask).after(at).of(pa.table({"position": positions}))
        at += len(positions)
        least = pc.min(there.column("position")).as_py()
        lowest = lowest if least is None else min(lowest, least)
    return lowest
