"""Which rows of the files that a scope replaces must stay, and how do they stay?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.log.storage import Storage, place, reading
from penstock.engine.rows.flat import whole
from penstock.engine.rows.statistics import staged_file
from penstock.engine.stage.replaced_files import Head
from penstock.engine.values.arrow_positions import stored_positions
from penstock.engine.values.files import DataFile
from penstock.engine.values.job import Job, StagedFile
from penstock.engine.values.plain_types import plain_table
from penstock.engine.values.positions import PositionField
from penstock.values.intervals import Interval, IntervalSet

FILE_ROWS = 1_000_000
"""No file of ours has more rows."""
GROUP_ROWS = 100_000
"""Nor a row group: a reader of one chunk skips the others."""


def keep(
    job: Job, head: Head, position: PositionField, folder: str, storage: Storage | None = None
) -> tuple[StagedFile, ...]:
    """The rows outside the scope of the files that straddle it, written again per gap: no file may span the scope.

    They are copied with Arrow: nothing is computed, and a Spark job would cost more than the copy.
    """
    keeping = _Keeping(job, position, folder, storage)
    for file in sorted(head.straddlers, key=lambda file: file.start):
        keeping.let_go(file.start)
        keeping.take(file)
    keeping.let_go(None)
    return tuple(keeping.files)


@dataclass(slots=True)
class _Keeping:
    job: Job
    position: PositionField
    folder: str
    storage: Storage | None
    files: list[StagedFile] = field(default_factory=list)
    _gaps: IntervalSet = field(init=False)
    _held: dict[Interval | None, list[pa.Table]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._gaps = self.job.scope.complement()

    def take(self, file: DataFile) -> None:
        """Hold what is to be kept of a file, by gap; None for rows without a position."""
        filesystem, inside = place(self.job.location, file.path, self.storage)
        with reading(self.job.location, file.path), filesystem.open_input_file(inside) as source:
            parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            for number in range(parquet.num_row_groups):
                for gap, rows in self._apart(plain_table(parquet.read_row_group(number, use_threads=False))):
                    self._hold(gap, rows)

    def let_go(self, next_low: int | None) -> None:
        """Write what no file that begins there or later can add to; None: there is none."""
        done = [gap for gap in self._held if next_low is None or (gap is not None and gap.end <= next_low)]
        for gap in done:
            self._write(self._held.pop(gap))

    def _hold(self, gap: Interval | None, rows: pa.Table) -> None:
        held = self._held.setdefault(gap, [])
        held.append(rows)
        if sum(table.num_rows for table in held) >= FILE_ROWS:
            self._write(self._held.pop(gap))

    def _apart(self, rows: pa.Table) -> Iterator[tuple[Interval | None, pa.Table]]:
        file = f"a file of {self.job.model} at {self.job.location}"
        positions = whole(stored_positions(rows.column(self.position.name), self.position, file))
        if positions.null_count:
            yield None, rows.filter(positions.is_null())
            rows, positions = rows.filter(positions.is_valid()), positions.drop_null()
        if not len(positions):
            return
        if pc.any(pc.less(positions.slice(1), positions.slice(0, len(positions) - 1))).as_py():
            order = pc.array_sort_indices(positions)
            rows, positions = rows.take(order), positions.take(order)
        for gap in self._gaps.within(positions[0].as_py(), positions[-1].as_py() + 1):
            start, end = (
                bisect_left(positions, edge, key=lambda value: value.as_py()) for edge in (gap.start, gap.end)
            )
            if start < end:
                whole_gap = self._gaps.part_at(gap.start)
                assert whole_gap is not None  # noqa: S101
                yield whole_gap, rows.slice(start, end - start)

    def _write(self, tables: Sequence[pa.Table]) -> None:
        rows = pa.concat_tables(tables, promote_options="default")
        for start in range(0, rows.num_rows, FILE_ROWS):
            target = f"{self.folder}/kept/{len(self.files)}.parquet"
            filesystem, inside = place(self.job.location, target, self.storage)
            filesystem.create_dir(inside.rpartition("/")[0], recursive=True)
            # without Arrow's own schema, which tells readers of other types than Spark wrote
            pq.write_table(
                rows.slice(start, FILE_ROWS),
                inside,
                filesystem=filesystem,
                compression="zstd",
                row_group_size=GROUP_ROWS,
                store_schema=False,
            )
            self.files.append(staged_file(self.job.location, target, self.job.position, self.storage))
