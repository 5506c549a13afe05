"""Are two multisets of rows equal, judged by what their rows add up to?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.engine.values.job import Digest
from penstock.engine.values.predicate import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

MOST_OBSERVED = 32
"""Chunks whose sums the staging job itself observes; more would make its generated code long and slow."""
HASH_A, HASH_B = "__penstock_a", "__penstock_b"
_LOW_HALF = 4294967295


def hash_columns(schema: StructType) -> tuple[str, str]:
    """Two hashes of a whole row, as SQL. NULLs leave Spark's hashes as they are, so they are told apart by a mark."""
    parts: list[str] = []
    for number, field in enumerate(schema.fields):
        name = quoted(field.name)
        parts += (comparable(name, field.dataType), f"if({name} is null, {number}, null)")
    joined = ", ".join(parts)
    return f"xxhash64({joined})", f"hash({joined})"


def comparable(expression: str, kind: DataType) -> str:
    """SQL of an equal scalar for equal values: nested values become text, maps with their keys in order."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, MapType):
        pairs = f"transform(array_sort(map_keys({expression})), k -> struct(k, element_at({expression}, k)))"
        expression = f"map_from_entries({pairs})"
    if isinstance(kind, (ArrayType, MapType, StructType)):
        return f"to_json({expression}, map('ignoreNullFields', 'false'))"
    return expression


def sums(condition: str, name: str) -> tuple[str, ...]:
    """Aggregates, as SQL, of the rows where `condition` holds; `digest_of` puts them together again.

    The 64-bit hash is summed in halves: a plain sum overflows, and decimals cost a multiple.
    """
    return (
        f"sum(if({condition}, 1L, 0L)) as {name}n",
        f"sum(if({condition}, shiftright({HASH_A}, 32), 0L)) as {name}h",
        f"sum(if({condition}, {HASH_A} & {_LOW_HALF}L, 0L)) as {name}l",
        f"sum(if({condition}, cast({HASH_B} as bigint), 0L)) as {name}b",
    )


def digest_of(row: Mapping[str, object], name: str) -> Digest:
    rows, high, low, other = (_whole(row[f"{name}{part}"]) for part in "nhlb")
    return Digest(rows, high * 2**32 + low, other)


def add(digests: Sequence[Digest]) -> Digest:
    return Digest(
        sum(digest.rows for digest in digests),
        sum(digest.sum_a for digest in digests),
        sum(digest.sum_b for digest in digests),
    )


def _whole(value: object) -> int:
    # sums over no rows at all are NULL
    if value is None:
        return 0
    assert isinstance(value, int)  # noqa: S101
    return value
