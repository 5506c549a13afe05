"""Which of a few new rows are stored already, and which of a few stored ones are no longer given?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.log.storage import Storage, place, reading
from penstock.engine.rows.chunk_rows import places, values_of
from penstock.engine.rows.statistics import staged_file
from penstock.engine.values.arrow_positions import stored_positions
from penstock.engine.values.files import DataFile
from penstock.engine.values.job import Job, StagedChunk, StagedFile
from penstock.engine.values.positions import PositionField
from penstock.values.intervals import Interval

Key = tuple[object, ...]
_NOT_A_NUMBER = "NaN"


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What an append adds and takes away; `differs` says where."""

    files: tuple[StagedFile, ...]
    """The rows whose key is not stored."""
    kept: tuple[StagedFile, ...]
    """What stays of the files in `replaced`."""
    replaced: tuple[str, ...]
    """Live files that hold a row to retract."""
    chunks: tuple[StagedChunk, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """A few files of new rows against those live files that may hold their keys or, to retract, rows of the scope."""

    job: Job
    key: tuple[str, ...]
    field: PositionField
    folder: str
    """Where to write what becomes of the rows, under the table's root."""
    storage: Storage | None = None

    def result(self, computed: Sequence[StagedFile], live: Sequence[DataFile]) -> AppendResult:
        new = [self._keyed(file.path) for file in computed]
        winners = self._winners(computed, new)
        computed_pairs = {pair for rows in new for pair in rows.pairs} if self.job.retract else set()
        stored: set[Key] = set()
        gone: list[int] = []
        kept: list[StagedFile] = []
        replaced: list[str] = []
        for file in live:
            rows = self._keyed(file.path)
            stays = [not self._is_retracted(pair, computed_pairs) for pair in rows.pairs]
            stored.update(key for (key, _), stay in zip(rows.pairs, stays, strict=True) if stay and key in winners)
            if not all(stays):
                gone += [p for (_, p), stay in zip(rows.pairs, stays, strict=True) if not stay and p is not None]
                kept += self._cut(file.path, stays, f"kept/{len(replaced)}")
                replaced.append(file.path)
        fresh = [
            [winners[key] == (number, place) and key not in stored for place, (key, _) in enumerate(rows.pairs)]
            for number, rows in enumerate(new)
        ]
        files = tuple(
            file for number, staged in enumerate(computed) for file in self._fresh(staged, number, fresh[number])
        )
        came = [
            position
            for rows, mask in zip(new, fresh, strict=True)
            for (_, position), is_fresh in zip(rows.pairs, mask, strict=True)
            if is_fresh and position is not None
        ]
        counted = [position for rows in new for _, position in rows.pairs if position is not None]
        return AppendResult(files, tuple(kept), tuple(replaced), self._chunks(counted, [*came, *gone]))

    def _is_retracted(self, pair: tuple[Key, int | None], computed_pairs: set[tuple[Key, int | None]]) -> bool:
        position = pair[1]
        return self.job.retract and position is not None and position in self.job.scope and pair not in computed_pairs

    def _keyed(self, path: str) -> _Keyed:
        table = opened(self.job.location, path, (*self.key, self.field.name), self.storage)
        keys = zip(*(map(_comparable, values_of(table, name)) for name in self.key), strict=True)
        positions = stored_positions(table.column(self.field.name), self.field, f"{path} of {self.job.location}")
        return _Keyed(tuple(zip(keys, positions.to_pylist(), strict=True)))

    def _winners(self, computed: Sequence[StagedFile], new: Sequence[_Keyed]) -> dict[Key, tuple[int, int]]:
        """The one row of each key, as (file, row): the first by position, then by its other values."""
        places_of: dict[Key, list[tuple[int, int]]] = {}
        for number, rows in enumerate(new):
            for place_in, (key, _) in enumerate(rows.pairs):
                places_of.setdefault(key, []).append((number, place_in))
        several = {where for rivals in places_of.values() if len(rivals) > 1 for where in rivals}
        ranks = {
            number: _ranks(opened(self.job.location, computed[number].path, None, self.storage), self.field.name)
            for number in {number for number, _ in several}
        }
        return {
            key: rivals[0] if len(rivals) == 1 else min(rivals, key=lambda where: (ranks[where[0]][where[1]], where))
            for key, rivals in places_of.items()
        }

    def _fresh(self, file: StagedFile, number: int, mask: list[bool]) -> list[StagedFile]:
        return [file] if all(mask) else self._cut(file.path, mask, f"fresh/{number}")

    def _cut(self, path: str, mask: list[bool], name: str) -> list[StagedFile]:
        """The rows of a file where `mask` says so, as a file of their own; nothing when there are none."""
        if not any(mask):
            return []
        rows = opened(self.job.location, path, None, self.storage).filter(pa.array(mask))
        target = f"{self.folder}/{name}.parquet"
        filesystem, inside = place(self.job.location, target, self.storage)
        filesystem.create_dir(inside.rpartition("/")[0], recursive=True)
        # without Arrow's own schema, which tells readers of other types than Spark wrote
        pq.write_table(rows, inside, filesystem=filesystem, compression="zstd", store_schema=False)
        return [staged_file(self.job.location, target, self.job.position, self.storage)]

    def _chunks(self, counted: Iterable[int], differing: Iterable[int]) -> tuple[StagedChunk, ...]:
        order = sorted(self.job.chunks)
        counts: dict[Interval, _ChunkCounts] = {chunk: _ChunkCounts() for chunk in order}
        starts = [chunk.start for chunk in order]
        for position in counted:
            counts[order[bisect_right(starts, position) - 1]].rows += 1
        for position in differing:
            counts[order[bisect_right(starts, position) - 1]].differs.add(position)
        return tuple(
            StagedChunk(chunk, count.rows, None, bool(count.differs), places(count.differs) if count.differs else None)
            for chunk in self.job.chunks
            for count in (counts[chunk],)
        )


@dataclass(frozen=True, slots=True)
class _Keyed:
    """The rows of a file: key and position of each."""

    pairs: tuple[tuple[Key, int | None], ...]


@dataclass(slots=True)
class _ChunkCounts:
    rows: int = 0
    differs: set[int] = field(default_factory=set)


def opened(location: str, path: str, columns: Sequence[str] | None, storage: Storage | None) -> pa.Table:
    """Some columns of a file, all of them by default; those that the file lacks are left out."""
    filesystem, inside = place(location, path, storage)
    with reading(location, path), pq.ParquetFile(inside, filesystem=filesystem) as file:
        return file.read(columns=None if columns is None else list(dict.fromkeys(columns)))


def _ranks(table: pa.Table, position: str) -> list[tuple[object, ...]]:
    """What decides between rows of one key, as Spark sorts: position, then plain columns in their order, NULL first."""
    names = [f.name for f in table.schema if not pa.types.is_nested(f.type) and f.name != position]
    columns = [[_sorting(value) for value in values_of(table, name)] for name in (position, *names)]
    return list(zip(*columns, strict=True))


def _sorting(value: object) -> tuple[object, ...]:
    if value is None:
        return (0,)
    return (2,) if _is_nan(value) else (1, value)


def _comparable(value: object) -> object:
    """A value that equals itself and has a hash."""
    return _NOT_A_NUMBER if _is_nan(value) else value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 - only NaN does
