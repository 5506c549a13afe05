"""Which of the chunks that share a query does a row belong to?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.engine.values.column_types import LONG
from penstock.engine.values.job import Tags
from penstock.engine.values.positions import PositionField
from penstock.engine.values.predicate import as_position, inside, starts
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import TAG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tagged(frame: DataFrame, field: PositionField, tags: Tags) -> DataFrame:
    """Each row once per chunk that reads it; rows that none of them reads are left out."""
    at = as_position(field)
    if not tags.before and not tags.after:
        return frame.selectExpr("*", f"{chunk_start(field, tags.chunks)} as {TAG}").filter(f"{TAG} is not null")
    spread = frame.selectExpr("*", f"explode({readers(at, tags)}) as {TAG}")
    return spread.filter(inside(TAG, LONG, IntervalSet.of(tags.chunks)))


def readers(at: str, tags: Tags) -> str:
    """SQL of the starts of the chunks that read a row at `at`; those of a grid may lie in gaps between the chunks."""
    step = regular(tags.chunks)
    if step is None or len(tags.chunks) < _most(tags, step[1]):
        listed = ", ".join(f"struct({chunk.start}L as s, {chunk.end}L as e)" for chunk in tags.chunks)
        near = f"c -> {at} >= c.s - {tags.before}L and {at} < c.e + {tags.after}L"
        return f"transform(filter(array({listed}), {near}), c -> c.s)"
    first, last = (_floored(f"({at} {shift})", *step) for shift in (f"- {tags.after}L", f"+ {tags.before}L"))
    lowest, highest = f"{tags.chunks[0].start}L", f"{tags.chunks[-1].start}L"
    near = f"sequence(greatest({first}, {lowest}), least({last}, {highest}), {step[1]}L)"
    return f"if({first} <= {highest} and {last} >= {lowest}, {near}, null)"


def _most(tags: Tags, size: int) -> int:
    """How many chunks of the grid read a row, counting none before the first and after the last of the batch."""
    reach = 1 - -(tags.before + tags.after) // size
    return min(reach, (tags.chunks[-1].start - tags.chunks[0].start) // size + 1)


def copies(tags: Tags | None) -> float:
    """How many chunks read a row, on average."""
    if tags is None:
        return 1.0
    windows = [Interval(chunk.start - tags.before, chunk.end + tags.after) for chunk in tags.chunks]
    return sum(window.size for window in windows) / IntervalSet.of(windows).size


def chunk_start(field: PositionField, chunks: Sequence[Interval]) -> str:
    """SQL of the start of the chunk that holds a row's position; NULL when none does."""
    step = regular(chunks)
    if step is None:
        return starts(field.name, field.kind, chunks)
    within = inside(field.name, field.kind, IntervalSet.of(chunks))
    return f"if({within}, {_floored(as_position(field), *step)}, null)"


def end_of(tag: str, chunks: Sequence[Interval]) -> str:
    """SQL of the end of the chunk whose start is `tag`."""
    step = regular(chunks)
    if step is not None:
        return f"({tag} + {step[1]})"
    listed = ", ".join(f"{chunk.start}L, {chunk.end}L" for chunk in chunks)
    return f"element_at(map({listed}), {tag})"


def regular(chunks: Sequence[Interval]) -> tuple[int, int] | None:
    """Origin and length when all chunks lie on one grid."""
    size = chunks[0].size
    origin = chunks[0].start % size
    fits = all(chunk.size == size and chunk.start % size == origin for chunk in chunks)
    return (origin, size) if fits else None


def _floored(position: str, origin: int, size: int) -> str:
    return f"({position} - pmod({position} - {origin}L, {size}L))"
