"""What Spark says of a source whose log does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.spark.session import Session
from penstock.engine.values.files import PositionColumn
from penstock.values.models.source_format import SourceFormat

if TYPE_CHECKING:
    from penstock.engine.spark.delta_through_spark import SparkTableState
    from penstock.values.changes import LogChanges


@dataclass(frozen=True, slots=True)
class Scanner:
    """Bounds and changes of sources, found by Spark jobs."""

    session: Session
    storage: Mapping[str, str]

    def scan_bounds(
        self,
        location: str,
        source_format: SourceFormat,
        position: PositionColumn,
        *,
        snapshot: int | None,
        sql: str | None,
    ) -> tuple[int | None, int | None]:
        """The least and the greatest position of a source that no log describes."""
        from penstock.engine.spark.scan import scan

        return scan(self.session, location, source_format, position, snapshot=snapshot, sql=sql, storage=self.storage)

    def foreign_seen(self, location: str, position: PositionColumn | None) -> SparkTableState:
        """A Delta table whose log only Spark can read, as it is now."""
        from penstock.engine.spark.delta_through_spark import seen

        return seen(self.session, location, position)

    def foreign_changes(
        self, location: str, position: PositionColumn, after: int, upto: int, first: int | None
    ) -> LogChanges:
        """What the change feed of such a table tells of the commits between two snapshots."""
        from penstock.engine.spark.delta_through_spark import changes

        return changes(self.session, location, position, (after, upto), first)
