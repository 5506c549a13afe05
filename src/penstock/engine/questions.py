"""What people ask of stored rows: queries, comparisons and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.engine.spark.session import Session
from penstock.engine.values.job import InputRead, Job, RefreshJob

if TYPE_CHECKING:
    from penstock.engine.spark.query import Limits
    from penstock.engine.stage.compare import Comparison


@dataclass(frozen=True, slots=True)
class Questions:
    """Reads rows and writes none."""

    session: Session
    storage: Mapping[str, str]

    def query(self, sql: str, reads: Sequence[InputRead], limits: Limits | None = None) -> list[dict[str, object]]:
        from penstock.engine.spark.query import query

        return query(self.session, sql, reads, self.storage, limits)

    def compare(self, job: Job, snapshot: int) -> Comparison:
        from penstock.engine.stage.compare import compare

        return compare(self.session, job, snapshot, self.storage)

    def compare_whole(self, job: RefreshJob, snapshot: int) -> Comparison:
        from penstock.engine.refresh.comparing import compare_whole

        return compare_whole(self.session, job, snapshot, self.storage)

    def count_rows(self, read: InputRead) -> int:
        """How many rows a pinned read gives; Spark is asked only when the log cannot rule them out."""
        from penstock.engine.log.handle import FeatureUnsupported
        from penstock.engine.observe.source_log import source_log

        try:
            log = source_log(read.format)
            seen = log.snapshot(read.pin.location, read.position, version=read.pin.snapshot, storage=self.storage)
            if seen is None or not seen.meeting(read.window):
                return 0
        except FeatureUnsupported:
            pass
        view = replace(read, view="penstock_counted")
        (row,) = self.query("select count(*) as n from penstock_counted", (view,))
        return int(str(row["n"]))
