"""Where do a project's tables lie, and at which snapshot may they be read?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.values.files import PositionColumn
from penstock.errors import QueryError
from penstock.planner.observations import pin_of
from penstock.project import Project
from penstock.values.intervals import IntervalSet
from penstock.values.models import Graph, Model, Source
from penstock.values.models.axis import SECOND
from penstock.values.models.source_format import DELTA
from penstock.values.records import StateView
from penstock.values.tasks import Pin

if TYPE_CHECKING:
    from penstock.engine.values.job import InputRead


@dataclass(frozen=True, slots=True)
class TableResolver:
    """Resolves a model to the location of its table and the snapshot to read.

    Paths inside the project are stored relative to it, so that it can be moved.
    """

    project: Project
    warehouse: str = field(init=False)
    """Looked up once: following links costs more than all else that is said about a table."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "warehouse", self.project.resolve(self.project.settings.target.warehouse))

    @property
    def graph(self) -> Graph:
        return self.project.graph

    @property
    def storage(self) -> Mapping[str, str]:
        """How its files are reached."""
        return self.project.settings.target.storage

    def source(self, source: Source) -> str:
        """Where a source lies."""
        if source.location is None:
            raise QueryError(f"{source.name} has no location", hint=f"give it a location in {source.file}")
        return self.project.resolve(source.location)

    def table(self, stored: str) -> str:
        """Where a generation lies that is stored as `stored`."""
        return f"{self.warehouse.rstrip('/')}/{stored}"

    def located(self, pin: Pin) -> Pin:
        """A stored pin with the place where its table lies now."""
        return replace(pin, location=self.table(pin.location) if pin.generation else self.project.resolve(pin.location))

    def pin(self, name: str, view: StateView, *, serving: bool = False) -> Pin | None:
        """An input as it may be read: sources as observed, ours as accepted; None when there is nothing to read.

        While a model is rebuilt, its consumers read the new generation and `serving` readers the old one.
        """
        return pin_of(self.graph.models[name], view, serving=serving)

    def reading(self, view: str, name: str, pin: Pin, window: IntervalSet | None = None) -> InputRead:
        """One relation for the engine, cut to `window` by the table's own position column."""
        from penstock.engine.values.job import InputRead  # whoever only asks reads nothing

        model = self.graph.models[name]
        column = position_column(model)
        return InputRead(
            view=view,
            name=name,
            pin=self.located(pin),
            format=model.format if isinstance(model, Source) else DELTA,
            position=column,
            window=window if column else None,
        )


def position_column(model: Model) -> PositionColumn | None:
    return None if model.position is None else PositionColumn(model.position, model.axis or SECOND)
