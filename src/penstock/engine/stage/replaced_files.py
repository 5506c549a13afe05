"""Which live files does a scope replace, and which of them hold other rows too?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from penstock.engine.log import snapshot as log
from penstock.engine.log.storage import Storage, is_absolute
from penstock.engine.rows.columns import fits
from penstock.engine.spark.read import plain_schema
from penstock.engine.values.files import DataFile, TableSnapshot
from penstock.engine.values.job import Job
from penstock.engine.values.positions import PositionField
from penstock.errors import EngineError
from penstock.values.intervals import MIN_POSITION, IntervalSet

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


SMALL_ROWS, SMALL_BYTES = 20_000, 2**20
"""A file below both is small."""
MANY_SMALL = 16
MOST_GATHERED = 64


@dataclass(frozen=True, slots=True)
class Target:
    """The columns that files of the table get, and the one among them that carries positions."""

    schema: StructType
    field: PositionField


@dataclass(frozen=True, slots=True)
class Head:
    """The newest snapshot of the table an attempt writes to, seen from its scope."""

    location: str
    snapshot: TableSnapshot | None
    replaced: tuple[DataFile, ...]
    straddlers: tuple[DataFile, ...]

    @classmethod
    def of(cls, job: Job, storage: Storage | None, *, gather: bool = False) -> Head:
        """With `gather` many small files beside the scope are replaced, too: what is kept of them becomes one."""
        snapshot = log.snapshot(job.location, job.position, storage=storage)
        if snapshot is None:
            return cls(job.location, None, (), ())
        # what appends leaves files alone, unless its look-up finds something to retract
        replaced = () if job.unique_key else snapshot.meeting(job.scope)
        vectors = [file.path for file in replaced if file.has_deletion_vector]
        if vectors or snapshot.needs_delta_reader is not None or snapshot.partition_columns:
            why = "deletion vectors" if vectors else snapshot.needs_delta_reader or "partition columns"
            raise EngineError(
                f"{job.model}: another program gave the table at {job.location} {why}, so its files cannot be replaced",
                hint="REORG TABLE … APPLY (PURGE) removes deletion vectors; for anything else rebuild the table",
            )
        straddlers = tuple(file for file in replaced if not file.inside(job.scope))
        beside = _beside(snapshot.files, job.scope) if gather and not job.unique_key else ()
        return cls(job.location, snapshot, (*replaced, *beside), (*straddlers, *beside))

    @property
    def version(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.version

    @property
    def schema(self) -> StructType | None:
        return None if self.snapshot is None else plain_schema(self.snapshot.schema_json)

    def takes(self, schema: StructType) -> bool:
        """Whether rows of `schema` can be added without another look at their columns."""
        return self.schema is None or fits(self.schema, schema)


def _beside(files: Sequence[DataFile], scope: IntervalSet) -> tuple[DataFile, ...]:
    """The small files next to the scope on either side, when they are many."""
    neighbours: list[DataFile] = []
    below = [file for file in files if file.high is not None and file.high < scope.edges[0]]
    above = [file for file in files if file.low is not None and file.low >= scope.edges[-1]]
    for side in (sorted(below, key=_high, reverse=True), sorted(above, key=lambda file: file.start)):
        small = tuple(islice(takewhile(_is_small, side), MOST_GATHERED))
        neighbours += small if len(small) >= MANY_SMALL else ()
    return tuple(neighbours)


def _is_small(file: DataFile) -> bool:
    few = file.rows is not None and file.rows <= SMALL_ROWS and file.size <= SMALL_BYTES
    return few and not file.has_deletion_vector and not is_absolute(file.path)


def _high(file: DataFile) -> int:
    return MIN_POSITION if file.high is None else file.high
