"""Where do a name's files lie?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from penstock.models import Graph, IntervalModel, Source
from penstock.engine.files import PositionColumn
from penstock.engine.job import InputRead
from penstock.errors import QueryError
from penstock.intervals import IntervalSet
from penstock.state.records import World
from penstock.tasks import Pin


@dataclass(frozen=True, slots=True)
class Places:
    """Turns what is stored (relative where it lies inside) into where it is now, so that a project can be moved."""

    root: Path
    warehouse: str

    def absolute(self, location: str, base: str) -> str:
        if "://" in location or location.startswith("/"):
            return location
        joined = f"{base.rstrip('/')}/{location.removeprefix('./')}"
        return joined if "://" in joined else str(Path(joined))

    def source(self, source: Source) -> str:
        if source.location is None:
            raise QueryError(f"{source.name} has no location", hint=f"give it a location in {source.file}")
        return self.absolute(source.location, str(self.root))

    def table(self, stored: str) -> str:
        return self.absolute(stored, self.warehouse)

    def of(self, pin: Pin) -> str:
        """Where the table of a stored pin lies now."""
        return self.table(pin.location) if pin.generation else self.absolute(pin.location, str(self.root))


def pin(name: str, graph: Graph, world: World, *, serving: bool = False) -> Pin | None:
    """The input as it may be read now: sources as observed, our tables as accepted; None when there is nothing to read."""
    model = graph.models[name]
    if isinstance(model, Source):
        record = world.sources.get(name)
        if record is None or record.observed_at is None:
            return None
        return Pin(model.location or "", record.snapshot, record.table_id)
    generation = (world.current if serving else world.working).get(name)
    if generation is None or generation.accepted_snapshot is None:
        return None
    return Pin(generation.location, generation.accepted_snapshot, None, str(generation.id))


def reading(
    view: str, name: str, stored: Pin, graph: Graph, places: Places, window: IntervalSet | None = None
) -> InputRead:
    """One relation for the engine: the pin made absolute, cut by the table's own position column."""
    model = graph.models[name]
    column = position_column(model)
    return InputRead(
        view=view,
        name=name,
        pin=replace(stored, location=places.of(stored)),
        format=model.format if isinstance(model, Source) else "delta",
        position=column,
        window=window if column else None,
    )


def position_column(model: Source | IntervalModel) -> PositionColumn | None:
    if model.position is None:
        return None
    return PositionColumn(model.position, model.axis or "second")
