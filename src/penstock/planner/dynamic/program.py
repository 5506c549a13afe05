"""stub"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class FullOnly:
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pushed:
    input: str
    column: str
    key: int
    unit: str | None


@dataclass(frozen=True, slots=True)
class Incremental:
    shape: str
    columns: tuple[str, ...]
    hidden: tuple[str, ...]
    key: tuple[str, ...]
    monotone: bool
    timed: bool
    reads_old: frozenset[str]
    pushed: tuple[Pushed, ...]

    def full(self, now: datetime | None) -> str:
        return ""

    def keys(self, changed: frozenset[str], then: datetime | None, now: datetime | None) -> str | None:
        return None

    def rows(self, now: datetime | None) -> str:
        return ""


def understand(
    sql: str, inputs: Mapping[str, Mapping[str, str]], declared_key: tuple[str, ...] = ()
) -> Incremental | FullOnly:
    return FullOnly("NOT_RESOLVED", "not there yet")
