"""What is a template rendered for?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.project.keys.settings import Kind
from penstock.project.reading.documents import Plain
from penstock.values.intervals import Interval


@dataclass(frozen=True, slots=True)
class RefUse:
    """One `ref()` in a query: which table is read there."""

    model: str
    all: bool = False
    """The whole table, not cut to the interval."""
    absent: bool = False
    """An optional input that has no data: an empty relation of its columns."""


Ref = Callable[[RefUse], str]
"""Turns a use into the relation that stands in the text."""


@dataclass(frozen=True, slots=True)
class ScanContext:
    """Which part of a source a bounds query should look at."""

    is_full: bool
    previous_min: int | None = None
    previous_max: int | None = None


@dataclass(frozen=True, slots=True)
class TemplateContext:
    """What all renderings of one template have in common."""

    name: str
    position: str | None
    axis: str
    interval: int | None
    groups: tuple[tuple[str, ...], ...]
    positions: Mapping[str, str | None]
    """The position column of every model in the project, by name."""
    databases: Mapping[Kind, str]
    env: Mapping[str, str] = field(repr=False)
    vars: Mapping[str, Plain]
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """A disabled member of an OR group, and a member of that group which is left."""


@dataclass(frozen=True, slots=True)
class ChunkQuery:
    """One rendering of a model's template."""

    context: TemplateContext
    ref: Callable[..., str]
    """What the template calls as `ref`."""
    bounds: Interval
    task_start: int
    lane: str


@dataclass(frozen=True, slots=True)
class ScanQuery:
    """One rendering of a source's bounds query."""

    context: TemplateContext
    ref: Callable[..., str]
    """What the template calls as `ref`."""
    relation: str
    """The table of the source, as it stands in the text."""
    scan: ScanContext
