"""How old may a dynamic table get before it is refreshed?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import assert_never

from penstock.planner.dynamic.companions import companions
from penstock.values.models import DynamicModel, Graph


def target_lags(graph: Graph) -> Mapping[str, int | None]:
    """By dynamic table: after how many seconds it is too old; 0: as soon as an input changes; None: when asked.

    Whoever reads a table needs it fresh: with a shorter lag of its own it is refreshed as often. Companions do not go
    on before each other, so the shortest lag is that of all of them.
    """
    related = companions(graph)
    lags: dict[str, int | None] = {}
    settled = False
    while not settled:
        before = dict(lags)
        for model in reversed(graph.dynamic_models):
            wanted = _shortest(lags, related.readers[model.name])
            lag = _target(model, wanted)
            also = _shortest(lags, related.of[model.name])
            lags[model.name] = lag if lag is None or also is None else min(lag, also)
        settled = lags == before
    return lags


def leads(graph: Graph, lags: Mapping[str, int | None], takes: Mapping[str, float]) -> Mapping[str, float]:
    """By dynamic table: how many seconds before its lag ends a refresh must begin, to be done in time.

    After it come those of its consumers, which have to be done before their own lags end. `takes`: how long each lasts.
    """
    readers = companions(graph).readers
    begins: dict[str, float] = {}
    leads: dict[str, float] = {}
    for model in reversed(graph.dynamic_models):
        lag, seconds = lags[model.name], takes.get(model.name, 0.0)
        consumers = [begins[child] for child in readers[model.name] if child in begins]
        if lag is None:
            leads[model.name] = seconds
            continue
        begins[model.name] = min([lag, *consumers]) - seconds
        leads[model.name] = lag - begins[model.name]
    return leads


def _shortest(lags: Mapping[str, int | None], names: Iterable[str]) -> int | None:
    return min((lag for name in names if (lag := lags.get(name)) is not None), default=None)


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
