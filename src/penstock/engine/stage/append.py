"""Which of the new rows does an append add, and which stored ones does it retract?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from penstock.engine.log.storage import Storage
from penstock.engine.spark.read import staged_rows, through_parquet
from penstock.engine.stage.candidates import able_to_hold
from penstock.engine.stage.chunks import rows_per_chunk
from penstock.engine.stage.file_parts import laid_out, written
from penstock.engine.stage.key_lookup import AppendResult, Lookup
from penstock.engine.stage.query_rows import SMALL_BYTES, configure, key_columns
from penstock.engine.stage.replaced_files import Head, Target
from penstock.engine.values.files import DataFile
from penstock.engine.values.job import Job, StagedChunk, StagedFile
from penstock.engine.values.predicate import as_position, index, inside, quoted
from penstock.values.intervals import Interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_KEY_VALUES = 300_000
"""Beyond so many values of keys and positions Spark is quicker than Python."""
# names that no model has
_KEY, _OWN, _RANK, _CHUNK = "__penstock_key_", "__penstock_own_", "__penstock_rank", "__penstock_chunk"


def look_up(
    spark: SparkSession,
    job: Job,
    head: Head,
    target: Target,
    *,
    computed: tuple[StagedFile, ...],
    folder: str,
    storage: Storage | None,
) -> AppendResult:
    """The rows of `computed` against the table as it is in `head`; what remains of them is written to `folder`."""
    key = key_columns(job, target.schema)
    live = searched(job, head, key, computed, storage)
    names = tuple(name for name, _ in key)
    counts = [*(file.rows for file in computed), *(file.rows for file in live)]
    if None not in counts and sum(count or 0 for count in counts) * (len(names) + 1) <= MOST_KEY_VALUES:
        return Lookup(job, names, target.field, folder, storage).result(computed, live)
    size = sum(file.size for file in computed) + sum(file.size for file in live)
    configure(spark, size)
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    joined = _Joined(spark, job, target, names, large=size > SMALL_BYTES, folder=folder, storage=storage)
    return joined.result(computed, live)


def searched(
    job: Job,
    head: Head,
    key: Sequence[tuple[str, str]],
    computed: Sequence[StagedFile],
    storage: Storage | None,
) -> tuple[DataFile, ...]:
    """The live files that may hold a key of the new rows, or a row to retract."""
    if head.snapshot is None:
        return ()
    paths = {file.path for file in able_to_hold(head.snapshot, computed, key, storage)}
    if job.retract:
        paths |= {file.path for file in head.snapshot.meeting(job.scope)}
    return tuple(file for file in head.snapshot.files if file.path in paths)


class _Joined:
    """The same look-up as that of a few rows, by joins; equal keys are equal as `<=>` says."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        target: Target,
        key: tuple[str, ...],
        *,
        large: bool,
        folder: str,
        storage: Storage | None,
    ) -> None:
        self.spark, self.job, self.target, self.key = spark, job, target, key
        self.large, self.folder, self.storage = large, folder, storage
        self._inside = inside(target.field.name, target.field.kind, job.scope)

    def result(self, computed: tuple[StagedFile, ...], live: tuple[DataFile, ...]) -> AppendResult:
        new = staged_rows(self.spark, self.job.location, self.target.schema, computed)
        old = through_parquet(self.spark, self.job.location, self.target.schema, live)
        stays, gone = old, dict[Interval, int]()
        kept: tuple[StagedFile, ...] = ()
        replaced: tuple[str, ...] = ()
        if self.job.retract:
            stays = self._stays(old, new)
            gone = self._per_chunk(self._matching(old.filter(self._inside), new, "left_anti", by_position=True))
        if gone:
            meeting = tuple(file for file in live if file.meets(self.job.scope))
            rest = self._stays(through_parquet(self.spark, self.job.location, self.target.schema, meeting), new)
            kept = self._written(rest, "kept")
            replaced = tuple(file.path for file in meeting)
        fresh = self._matching(self._first_of_each(new), stays, "left_anti")
        files = computed
        if fresh.count() != sum(file.rows for file in computed):
            files = self._written(fresh, "fresh")
        return AppendResult(files, kept, replaced, self._chunks(computed, files, gone))

    def _stays(self, old: DataFrame, new: DataFrame) -> DataFrame:
        """The stored rows outside the scope, and those within it that are still given."""
        outside = old.filter(f"not coalesce({self._inside}, false)")
        return outside.union(self._matching(old.filter(self._inside), new, "left_semi", by_position=True))

    def _first_of_each(self, new: DataFrame) -> DataFrame:
        """One row of each key: the first by position, then by its other plain values."""
        position = self.target.field.name
        plain = [f.name for f in self.target.schema.fields if isinstance(f.dataType.jsonValue(), str)]
        order = ", ".join(quoted(name) for name in dict.fromkeys((position, *plain)))
        keys = ", ".join(map(quoted, self.key))
        ranked = new.selectExpr("*", f"row_number() over (partition by {keys} order by {order}) as {_RANK}")
        return ranked.filter(f"{_RANK} = 1").select(*map(quoted, self.target.schema.names))

    def _matching(self, rows: DataFrame, others: DataFrame, how: str, *, by_position: bool = False) -> DataFrame:
        """The rows that have, or lack, one with their key among `others`, at their position where that is asked."""
        own = [quoted(name) for name in self.key]
        if by_position:
            own.append(as_position(self.target.field))
        right = others.selectExpr(*(f"{text} as {_KEY}{number}" for number, text in enumerate(own)))
        left = rows.selectExpr("*", *(f"{text} as {_OWN}{number}" for number, text in enumerate(own)))
        same: list[Column] = [
            left[f"{_OWN}{number}"].eqNullSafe(right[f"{_KEY}{number}"]) for number in range(len(own))
        ]
        joined = left.join(right, reduce(lambda a, b: a & b, same), how)
        return joined.select(*map(quoted, self.target.schema.names))

    def _written(self, rows: DataFrame, name: str) -> tuple[StagedFile, ...]:
        arranged = laid_out(rows, self.target.field, self.large, cluster_by=self.job.cluster_by)
        return written((arranged,), self.job, f"{self.folder}/{name}", self.storage)

    def _per_chunk(self, rows: DataFrame) -> dict[Interval, int]:
        order = sorted(self.job.chunks)
        number = index(self.target.field.name, self.target.field.kind, order)
        counted = rows.selectExpr(f"{number} as {_CHUNK}").groupBy(_CHUNK).count().collect()
        return {order[row[0]]: row[1] for row in counted}

    def _chunks(
        self, computed: tuple[StagedFile, ...], files: tuple[StagedFile, ...], gone: dict[Interval, int]
    ) -> tuple[StagedChunk, ...]:
        computed_rows = rows_per_chunk(self.job, computed, self.target.field, self.storage)
        added = computed_rows if files is computed else rows_per_chunk(self.job, files, self.target.field, self.storage)
        return tuple(
            StagedChunk(chunk, computed_rows[chunk], None, added[chunk] > 0 or chunk in gone)
            for chunk in self.job.chunks
        )
