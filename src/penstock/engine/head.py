"""Which live files does a scope replace, and which of them hold other rows too?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine import log
from penstock.engine.columns import fits
from penstock.engine.files import DataFile, TableSnapshot
from penstock.engine.job import Job
from penstock.engine.positions import PositionField
from penstock.engine.read import plain_schema
from penstock.engine.storage import Storage
from penstock.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
    def of(cls, job: Job, storage: Storage | None) -> Head:
        snapshot = log.snapshot(job.location, job.position, storage=storage)
        if snapshot is None:
            return cls(job.location, None, (), ())
        # what appends leaves files alone, unless its look-up finds something to retract
        replaced = () if job.unique_key else snapshot.meeting(job.scope)
        vectors = [file.path for file in replaced if file.has_deletion_vector]
        if vectors or snapshot.needs_delta_reader is not None or snapshot.partition_columns:
            why = "deletion vectors" if vectors else snapshot.needs_delta_reader or "partition columns"
            raise EngineError(
                f"{job.model}: somebody gave the table at {job.location} {why}, so its files cannot be replaced",
                hint="REORG TABLE … APPLY (PURGE) removes deletion vectors; for anything else rebuild the table",
            )
        return cls(job.location, snapshot, replaced, tuple(f for f in replaced if not f.inside(job.scope)))

    @property
    def version(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.version

    @property
    def schema(self) -> StructType | None:
        return None if self.snapshot is None else plain_schema(self.snapshot.schema_json)

    def takes(self, schema: StructType) -> bool:
        """Whether rows of `schema` can be added without another look at their columns."""
        return self.schema is None or fits(self.schema, schema)
