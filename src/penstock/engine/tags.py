"""Which of the chunks that share a query does a row belong to?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.engine.job import Tags
from penstock.engine.positions import PositionField
from penstock.engine.predicate import as_position, inside, starts
from penstock.intervals import Interval, IntervalSet
from penstock.tasks import TAG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tagged(frame: DataFrame, field: PositionField, tags: Tags) -> DataFrame:
    """Each row once per chunk that reads it; rows that none of them reads are left out."""
    at = as_position(field)
    if not tags.before and not tags.after:
        return frame.selectExpr("*", f"{chunk_start(field, tags.chunks)} as {TAG}").filter(f"{TAG} is not null")
    step = regular(tags.chunks)
    if step is None:
        listed = ", ".join(f"struct({one.start}L as s, {one.end}L as e)" for one in tags.chunks)
        near = f"c -> {at} >= c.s - {tags.before}L and {at} < c.e + {tags.after}L"
        return frame.selectExpr("*", f"explode(transform(filter(array({listed}), {near}), c -> c.s)) as {TAG}")
    first, last = (_floored(f"({at} {shift})", *step) for shift in (f"- {tags.after}L", f"+ {tags.before}L"))
    spread = frame.selectExpr("*", f"explode(sequence({first}, {last}, {step[1]}L)) as {TAG}")
    return spread.filter(inside(TAG, "integer", IntervalSet.of(tags.chunks)))


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
    listed = ", ".join(f"{one.start}L, {one.end}L" for one in chunks)
    return f"element_at(map({listed}), {tag})"


def regular(chunks: Sequence[Interval]) -> tuple[int, int] | None:
    """Origin and length when all chunks lie on one grid."""
    size = chunks[0].size
    origin = chunks[0].start % size
    fits = all(one.size == size and one.start % size == origin for one in chunks)
    return (origin, size) if fits else None


def _floored(position: str, origin: int, size: int) -> str:
    return f"({position} - pmod({position} - {origin}L, {size}L))"
