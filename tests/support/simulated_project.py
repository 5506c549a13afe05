"""The project of the simulation: ten minutes are a position, an hour is six, and every way to depend occurs once."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from penstock.project import Project, unpack

HOUR = 6
DAY = 24 * HOUR
SECONDS = 600
"""Of one position."""
SOURCES = ("numbers", "primary", "backup")
SETTINGS = """name: simulation
databases: {external: raw, transformation: t}
warehouse: memory://warehouse
scheduler: {sweep: 1 minute, repair_delay: 30 seconds, retention: 12 hours}
targets: {test: {state: "${PENSTOCK_STATE}", schema: simulation}}
"""
_SOURCE = "location: memory://landing/{}\nposition: n\naxis: number\n"
MODELS = {
    "copy": ("interval: 6", "select n, value * 1 as value from {{ ref('raw.numbers') }}"),
    # new rows as they come; the open hour is computed whole every time
    "buckets": (
        "interval: {max: 12, min: 0, align: 6}",
        "select n - n % 6 as n, sum(value) as value from {{ ref('raw.numbers') }} group by 1",
    ),
    "rolling": (
        "interval: 12\ndependencies: [{model: t.copy, before: 9}]",
        "select a.n, sum(b.value) as value from {{ ref('t.copy') }} a "
        "join {{ ref('t.copy') }} b on b.n > a.n - 9 and b.n <= a.n group by a.n",
    ),
    # looks ahead, one chunk after the other
    "ordered": (
        "interval: 6\nmax_inflight: 1\nfill: {direction: tail, allow_gap_skipping: false}\n"
        "dependencies: [{model: t.buckets, before: 6, after: 6}]",
        "select {{ bounds.start }} as n, max(value) as value from {{ ref('t.buckets') }} having count(*) > 0",
    ),
    "either": (
        "interval: 12\nmax_inflight: 2\nfill: {backfill: oldest}\ndependencies: [[raw.primary, raw.backup]]",
        "select n, value from {{ ref('raw.primary') }}",
    ),
    # every commit counts here, also one that brings the same rows again
    "slow": (
        "interval: 6\ndeduplicate: false\n"
        'schedules: {forwardfill: "@every 20m", backfill: "10 */2 * * *"}\n'
        "dependencies: [{model: raw.numbers, before: 3}]",
        "select {{ bounds.start }} as n, count(*) as value, {{ bounds.end }} as until "
        "from {{ ref('raw.numbers') }} having count(*) > 0",
    ),
    "daily": (
        'interval: 144\nschedules: {forwardfill: "@every 1d"}',
        "select n, value from {{ ref('t.either') }}",
    ),
    # a keyed row goes when its source row does
    "facts": (
        "interval: 12\nupdate_strategy: append\nunique_key: [n, value]\non_retract: retract",
        "select n, value % 7 as value from {{ ref('t.copy') }}",
    ),
    # whatever was seen once stays, wherever it was seen first
    "known": (
        "interval: 6\nupdate_strategy: append\nunique_key: value",
        "select n, value % 200 as value from {{ ref('raw.numbers') }}",
    ),
    "joined": (
        "interval: 24",
        "select a.n, a.value + b.value as value from {{ ref('t.copy') }} a join {{ ref('t.slow') }} b on b.n = a.n",
    ),
}


def _files(models: dict[str, tuple[str, str]]) -> dict[str, bytes]:
    sources = {f"models/external/{name}.yml": _SOURCE.format(name) for name in SOURCES}
    queries = {
        f"models/transformations/{name}.sql": f"---\nposition: n\n{matter}\n---\n{sql}\n"
        for name, (matter, sql) in models.items()
    }
    texts = {"penstock.yml": SETTINGS, **sources, **queries}
    return {name: text.encode() for name, text in texts.items()}


@cache
def revisions() -> tuple[Project, ...]:
    """The project as it is first, then as people change it: other queries, other cadences, a model less."""
    matter, sql = MODELS["copy"]
    other_query = MODELS | {"copy": (matter, sql.replace("* 1", "* 2"))}
    matter, sql = MODELS["either"]
    other_leaf = MODELS | {
        "either": (matter.replace("interval: 12", "interval: 24"), sql.replace("value", "-value as value"))
    }
    matter, sql = MODELS["slow"]
    other_cadence = MODELS | {"slow": (matter.replace("20m", "45m").replace("10 */2", "30 */1"), sql)}
    fewer = {name: model for name, model in MODELS.items() if name != "rolling"}
    variants = (MODELS, other_query, other_leaf, other_cadence, fewer)
    return tuple(unpack(_files(models), Path("/nowhere"), environ()) for models in variants)


def environ() -> dict[str, str]:
    return {**os.environ, "PENSTOCK_STATE": "postgresql://nobody@nowhere/simulation"}


def factor(project: Project) -> int:
    """What `copy` multiplies by."""
    return 2 if "* 2" in project.graph.interval_model("t.copy").sql else 1
