"""What `run` reports while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.values.tasks import Order


@dataclass(frozen=True, slots=True)
class Finished:
    """One attempt ended."""

    order: Order
    outcome: str
    """succeeded, retrying, dead, split, released or lost."""
    seconds: float
    rows: int = 0
    written: bool = False
    error: str | None = None
    strategy: str | None = None
    """How a dynamic table was refreshed."""
    keys: int | None = None
    """How many of its keys were computed; None: all, or it does not go by keys."""


class Progress(Protocol):
    """Called by `run` with what happens, in this order, from several threads."""

    def planned(self, orders: tuple[Order, ...]) -> None: ...

    def started(self, order: Order) -> None: ...

    def finished(self, result: Finished) -> None: ...

    def note(self, text: str) -> None: ...


class Silent:
    """Reports nothing."""

    def planned(self, orders: tuple[Order, ...]) -> None:
        return

    def started(self, order: Order) -> None:
        return

    def finished(self, result: Finished) -> None:
        return

    def note(self, text: str) -> None:
        return
