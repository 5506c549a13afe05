"""Which rows came and which went when files took the place of others?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.multisets import POSITION, WEIGHT, equal_rows, summed_rows, without_pairs
from penstock.engine.tally import either
from penstock.engine.touched import LEGACY, Look, NoRowsToRead, opened, positions_in
from penstock.engine.vectors import Part
from penstock.intervals import MIN_POSITION

MOST_HELD_BYTES = 512 * 2**20
"""Rows that have not met their like yet are kept in memory, up to so much."""
BATCH_ROWS = 65_536


class TooManyRows(Exception):  # noqa: N818  a finding, not a fault
    """More rows are left over than memory is given for."""


@dataclass(frozen=True, slots=True)
class _Source:
    part: Part
    footer: pq.FileMetaData
    schema: pa.Schema


def change_rows(look: Look, gone: Sequence[Part], came: Sequence[Part], columns: Set[str]) -> pa.Table | None:
    """The rows that are not on both sides, each with its position and its weight: how often it came, or below 0 went.

    None when they cannot be compared: files are gone, not understood or more than the look may read, or too many rows
    are left over. Rows without a position are left out. Nothing is opened that is beyond the budget.
    """
    sides = [sorted((part for part in parts if not part.is_empty), key=_place) for parts in (gone, came)]
    if not look.purse.pay(size=sum(part.file.size for parts in sides for part in parts)):
        return None
    try:
        sources = [[_source(look, part, columns) for part in parts] for parts in sides]
        schema = _common([one.schema for side in sources for one in side])
        old, new = (_Stream(look, side, schema) for side in sources)
        left = _Leftover()
        while old.more() and new.more():
            left.add_pair(*_unequal(old, new))
        for stream, weight in ((old, -1), (new, 1)):
            while stream.more():
                left.add(stream.take(stream.held.num_rows), weight)
        return left.netted()
    except (NoRowsToRead, TooManyRows, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None


def feed_rows(look: Look, feed: Sequence[Part], columns: Set[str], kind: str) -> pa.Table | None:
    """The same of the rows of a change feed, which tell by the column `kind` what they are."""
    if not look.purse.pay(size=sum(part.file.size for part in feed)):
        return None
    try:
        sources = [_source(look, part, {*columns, kind}) for part in feed]
        schema = _common([one.schema for one in sources])
        left = _Leftover()
        for source in sources:
            for rows in _batches(look, source, schema):
                old = pc.is_in(rows.column(kind), pa.array(["delete", "update_preimage"]))
                bare = rows.drop_columns([kind])
                left.add(bare.filter(old), -1)
                left.add(bare.filter(pc.invert(old)), 1)
        return left.netted()
    except (NoRowsToRead, TooManyRows, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError):
        return None


def rows_by_position(rows: pa.Table) -> pa.Table:
    """How many rows changed at each position: as many as came, or as went when those are more."""
    flat = pa.table({"position": rows.column(POSITION), "rows": rows.column(WEIGHT)})
    came = flat.filter(pc.greater(flat.column("rows"), 0))
    went = flat.filter(pc.less(flat.column("rows"), 0))
    return either(pa.table({"position": went.column("position"), "rows": pc.negate(went.column("rows"))}), came)


@dataclass(slots=True)
class _Stream:
    """The rows of several files, in order."""

    look: Look
    sources: Sequence[_Source]
    schema: pa.Schema
    held: pa.Table = field(init=False)
    _batches: Iterator[pa.Table] = field(init=False)

    def __post_init__(self) -> None:
        self._batches = (rows for one in self.sources for rows in _batches(self.look, one, self.schema))
        self.held = pa.table({})

    def more(self) -> bool:
        """Whether rows are left; the next ones are `held`."""
        while not self.held.num_rows:
            found = next(self._batches, None)
            if found is None:
                return False
            self.held = found
        return True

    def take(self, count: int) -> pa.Table:
        taken, self.held = self.held.slice(0, count), self.held.slice(count)
        return taken


def _unequal(old: _Stream, new: _Stream) -> tuple[pa.Table, pa.Table]:
    """The next rows of both that are not the same one by one: an UPDATE leaves rows in their order."""
    count = min(old.held.num_rows, new.held.num_rows)
    went, came = old.take(count), new.take(count)
    differ = pc.invert(equal_rows(went.drop_columns([POSITION]), came.drop_columns([POSITION])))
    return went.filter(differ), came.filter(differ)


@dataclass(slots=True)
class _Leftover:
    """Rows that have not met their like yet; now and then those that have since are let go."""

    _rows: list[pa.Table] = field(default_factory=list)
    _bytes: int = 0
    _settled: int = 0

    def add_pair(self, went: pa.Table, came: pa.Table) -> None:
        self.add(went, -1)
        self.add(came, 1)

    def add(self, rows: pa.Table, weight: int) -> None:
        if not rows.num_rows:
            return
        weights = pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows)
        self._rows.append(rows.append_column(WEIGHT, weights))
        self._bytes += rows.nbytes
        if self._bytes > self._settled + max(self._settled, MOST_HELD_BYTES // 2):
            self._settle()
            if self._bytes > MOST_HELD_BYTES // 2:
                raise TooManyRows

    def netted(self) -> pa.Table:
        self._settle()
        return summed_rows(self._rows[0]) if self._rows else _NO_ROWS

    def _settle(self) -> None:
        if self._rows:
            kept = without_pairs(pa.concat_tables(self._rows).combine_chunks())
            self._rows, self._bytes, self._settled = [kept], kept.nbytes, kept.nbytes


_NO_ROWS = pa.table({POSITION: pa.array([], pa.int64()), WEIGHT: pa.array([], pa.int64())})


def _place(part: Part) -> tuple[int, str]:
    return MIN_POSITION if part.file.low is None else part.file.low, part.file.path


def _source(look: Look, part: Part, columns: Set[str]) -> _Source:
    with opened(look, part.file.path) as file:
        if LEGACY in (file.metadata.metadata or {}):
            raise NoRowsToRead
        wanted = columns - part.file.partition.keys()
        inside = [one for one in file.schema_arrow if one.name in wanted]
        outside = [pa.field(name, pa.string()) for name in part.file.partition]
        return _Source(part, file.metadata, pa.schema([*inside, *outside]).remove_metadata())


def _batches(look: Look, source: _Source, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file with a position, in the columns of all; what it has not is NULL."""
    part, at = source.part, 0
    names = [name for name in source.schema.names if name not in part.file.partition]
    with opened(look, part.file.path, source.footer) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names, use_threads=False):
            rows = pa.Table.from_batches([batch])
            positions = positions_in(look, part.file, rows)
            if positions is None:
                raise NoRowsToRead
            fitted = _fitted(rows, part.file.partition, schema).append_column(POSITION, positions)
            kept = part.after(at).of(fitted)
            at += rows.num_rows
            yield kept.filter(pc.is_valid(kept.column(POSITION))) if kept.column(POSITION).null_count else kept


def _fitted(rows: pa.Table, partition: Mapping[str, str | None], schema: pa.Schema) -> pa.Table:
    columns = []
    for one in schema:
        if one.name in partition:
            columns.append(pa.repeat(pa.scalar(partition[one.name], pa.string()), rows.num_rows))
        elif one.name in rows.column_names:
            columns.append(rows.column(one.name).cast(one.type, safe=not pa.types.is_timestamp(one.type)))
        else:
            columns.append(pa.nulls(rows.num_rows, one.type))
    return pa.table(columns, schema=schema)


def _common(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """All columns of all files, in one type each; NoRowsToRead when there is none that holds the values of all."""
    found: dict[str, pa.DataType] = {}
    for one in (one for schema in schemas for one in schema):
        kind = _plain(one.type)
        known = found.get(one.name, kind)
        wide = known if known == kind or pa.types.is_null(kind) else kind if pa.types.is_null(known) else None
        found[one.name] = wide or _wider(known, kind)
    return pa.schema(found.items())


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return pa.float64()
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return pa.decimal128(max(one.precision, other.precision), one.scale)
    raise NoRowsToRead


def _plain(kind: pa.DataType) -> pa.DataType:
    """The one type that we compare in, of those that mean the same; Spark has no nanoseconds."""
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_nested(kind):
        return _plain_nested(kind)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    binary = types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
    return pa.binary() if binary else kind


def _plain_nested(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _plain(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if hasattr(kind, "value_type"):
        return pa.list_(_plain(kind.value_type))
    raise NoRowsToRead
