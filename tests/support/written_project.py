"""Small projects that a test writes down and reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.errors import ProjectErrors
from penstock.project import Project, load
from penstock.values.models import IntervalModel, Source

CONFIG = "name: shop\ndatabases: {external: raw, transformation: shop}\n"
ORDERS = "location: ./landing/orders\nposition: ordered_at\n"
BASE = "interval: 1h\nposition: at\n"
HOURLY = """---
interval: 1 hour
position: hour
---
select date_trunc('hour', ordered_at) as hour, count(*) as orders
from {{ ref('raw.orders') }}
group by all
"""
SHOP = {
    "penstock.yml": CONFIG,
    "models/external/orders.yml": ORDERS,
    "models/transformations/hourly.sql": HOURLY,
}


def written(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def read(
    root: Path, files: Mapping[str, str], environ: Mapping[str, str] | None = None, target: str | None = None
) -> Project:
    return load(written(root, files), environ or {}, target)


def mistakes(
    root: Path, files: Mapping[str, str], environ: Mapping[str, str] | None = None, target: str | None = None
) -> list[str]:
    with pytest.raises(ProjectErrors) as caught:
        read(root, files, environ, target)
    return [f"{error.place}: {error.message}" for error in caught.value.errors]


def model(project: Project, name: str) -> IntervalModel:
    model = project.graph.models[name]
    assert isinstance(model, IntervalModel)
    return model


def source(project: Project, name: str) -> Source:
    source = project.graph.models[name]
    assert isinstance(source, Source)
    return source


def front(keys: str, query: str = "select ordered_at as at from {{ ref('raw.orders') }}") -> str:
    return f"---\n{keys}---\n{query}\n"


def one_model(keys: str, query: str = "select ordered_at as at from {{ ref('raw.orders') }}") -> dict[str, str]:
    return {
        "penstock.yml": CONFIG,
        "models/external/orders.yml": ORDERS,
        "models/transformations/m.sql": front(keys, query),
    }
