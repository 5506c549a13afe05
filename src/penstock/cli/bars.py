"""What does a person see while `run` works?"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from penstock.cli.show import count
from penstock.planner.policy.breaker import signature
from penstock.runtime.process.progress import Finished, Progress
from penstock.values.tasks import Order


def shown() -> AbstractContextManager[Progress]:
    """A bar per model on a terminal, plain lines elsewhere; written to standard error, so that output stays clean."""
    return Bars() if sys.stderr.isatty() else Lines()


class Lines:
    """Says what is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_note = ""
        self._said: set[tuple[str, str]] = set()
        """By model the errors that were shown: many chunks may fail alike."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def planned(self, orders: tuple[Order, ...]) -> None:
        """Nothing yet to be said."""

    def started(self, order: Order) -> None:
        """Nothing yet to be said."""

    def finished(self, result: Finished) -> None:
        with self._lock:
            self._say(_said(result, self._is_new(result)))

    def _is_new(self, result: Finished) -> bool:
        about = (result.order.model, signature(result.error or ""))
        known = about in self._said
        self._said.add(about)
        return not known

    def note(self, text: str) -> None:
        with self._lock:
            if text != self._last_note:
                self._last_note = text
                self._say(text)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201


class Bars(Lines):
    """Shows what is done of what was planned."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Drawn

        super().__init__()
        self._console = Console(stderr=True, highlight=False)
        self._bars: dict[str, TaskID] = {}
        self._planned: dict[str, int] = {}
        self._drawn = Drawn(
            TextColumn("{task.description:<32}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
        )

    def __enter__(self) -> Self:
        self._drawn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drawn.stop()

    def planned(self, orders: tuple[Order, ...]) -> None:
        with self._lock:
            for order in orders:
                self._planned[order.model] = self._planned.get(order.model, 0) + len(order.chunks)
                if order.model not in self._bars:
                    self._bars[order.model] = self._drawn.add_task(
                        order.model, total=0, note="", unit="refreshes" if order.lane == "refresh" else "intervals"
                    )
                self._drawn.update(self._bars[order.model], total=self._planned[order.model])

    def started(self, order: Order) -> None:
        with self._lock:
            if order.model in self._bars:
                self._drawn.update(self._bars[order.model], note=order.lane)

    def finished(self, result: Finished) -> None:
        with self._lock:
            model, chunks = result.order.model, len(result.order.chunks)
            if result.outcome == "succeeded" and model in self._bars:
                self._drawn.advance(self._bars[model], chunks)
            if result.error:
                self._say(_said(result, self._is_new(result)))

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


def _said(result: Finished, is_new: bool) -> str:
    order = result.order
    if order.lane == "refresh":
        what = f"{order.model}: {_refreshed(result)}"
    else:
        what = f"{order.model}: {count(len(order.chunks), 'interval')} ({order.lane}) {result.outcome}"
    if result.outcome == "succeeded":
        what += f", {count(result.rows, 'row')}" if result.written else ", nothing changed"
    return f"{what}, {result.seconds:.1f} s" + (f"\n  {result.error}" if result.error and is_new else "")


def _refreshed(result: Finished) -> str:
    if result.outcome != "succeeded":
        return f"refresh {result.outcome}"
    keys = "" if result.keys is None else f", {count(result.keys, 'key')}"
    return f"refreshed ({result.strategy}{keys})"
