"""Who reads whom?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import assert_never

from penstock.values.models.model import Declared, DynamicModel, FullModel, IntervalModel, Model, Source


@dataclass(frozen=True, slots=True)
class Graph:
    """The models by name, parents before children."""

    models: Mapping[str, Model]

    @classmethod
    def of(cls, models: tuple[Model, ...]) -> Graph:
        """The graph of `models`; a cycle is a ValueError that names its edges."""
        by_name = {model.name: model for model in models}
        parents = {name: parents_of(model) for name, model in by_name.items()}
        try:
            order = tuple(TopologicalSorter(parents).static_order())
        except CycleError as error:
            raise ValueError("these models depend on each other: " + " -> ".join(reversed(error.args[1]))) from None
        return cls({name: by_name[name] for name in order if name in by_name})

    def parents(self, name: str) -> tuple[str, ...]:
        return parents_of(self.models[name])

    def children(self, name: str) -> tuple[str, ...]:
        return tuple(child for child, model in self.models.items() if name in parents_of(model))

    def descendants(self, name: str) -> tuple[str, ...]:
        """Every model that reads `name`, directly or not, parents before children."""
        below = {name}
        for child in self.models:
            if below.intersection(self.parents(child)):
                below.add(child)
        return tuple(model for model in self.models if model in below and model != name)

    def interval_model(self, name: str) -> IntervalModel:
        model = self.models[name]
        if not isinstance(model, IntervalModel):
            raise TypeError(f"{name} is a {model.type}, not an interval model")
        return model

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(model for model in self.models.values() if isinstance(model, Source))

    @property
    def dynamic_models(self) -> tuple[DynamicModel, ...]:
        return tuple(model for model in self.models.values() if isinstance(model, DynamicModel))

    @property
    def built(self) -> tuple[IntervalModel | DynamicModel, ...]:
        """The tables that are ours, parents before children."""
        return tuple(model for model in self.models.values() if not isinstance(model, Source))

    @property
    def interval_models(self) -> tuple[IntervalModel, ...]:
        return tuple(model for model in self.models.values() if isinstance(model, IntervalModel))


def parents_of(model: Declared) -> tuple[str, ...]:
    """Every model that it may read."""
    match model:
        case Source():
            return ()
        case IntervalModel() | DynamicModel() | FullModel():
            return tuple(dict.fromkeys(member.model for group in model.dependencies for member in group))
        case _:
            assert_never(model)
