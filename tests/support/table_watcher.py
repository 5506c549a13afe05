"""A table watcher that reads while its caller waits: tests and measurements then know what it has seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from penstock.runtime.observe.audit import AuditState, audit
from penstock.runtime.observe.sources import Observer, Seen, scan_periods
from penstock.runtime.place.table_resolver import TableResolver
from penstock.values.records import StateView


@dataclass(frozen=True, slots=True)
class TableWatcher:
    """Looks at sources and at our own tables, through the logs alone, while the caller waits."""

    environ: Mapping[str, str]

    def periods(self, resolver: TableResolver, view: StateView) -> dict[str, float]:
        return scan_periods(resolver)

    def look(self, resolver: TableResolver, names: Collection[str], view: StateView) -> Iterator[Seen]:
        return Observer(resolver, None, self.environ, runs_programs=False).look(names, view)

    def audit(self, resolver: TableResolver, state: AuditState, view: StateView) -> Iterator[str | None]:
        return audit(resolver, state, view)
