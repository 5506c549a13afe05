"""How old may a dynamic table get before it is refreshed?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_never

from penstock.values.models import DynamicModel, Graph


def target_lags(graph: Graph) -> Mapping[str, int | None]:
    """By dynamic table: after how many seconds it is too old; 0: as soon as an input changes; None: when asked.

    Whoever reads a table needs it fresh: with a shorter lag of its own it is refreshed as often.
    """
    lags: dict[str, int | None] = {}
    for model in reversed(graph.dynamic_models):
        wanted = [lags[child] for child in graph.children(model.name) if child in lags]
        lags[model.name] = _target(model, min((lag for lag in wanted if lag is not None), default=None))
    return lags


def _target(model: DynamicModel, consumers: int | None) -> int | None:
    match model.target_lag:
        case "manual":
            return None
        case "on_upstream":
            return 0
        case "downstream":
            return consumers
        case int(seconds):
            return seconds if consumers is None else min(seconds, consumers)
        case _:
            assert_never(model.target_lag)


def due_at(fresh: datetime | None, target: int, takes_seconds: float) -> datetime | None:
    """When a refresh must begin to be done in time; None: now, because nobody knows how old the rows are."""
    return None if fresh is None else fresh + timedelta(seconds=max(target - takes_seconds, 0.0))
