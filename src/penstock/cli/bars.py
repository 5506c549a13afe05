"""What does a person see while `run` works?"""

from __future__ import annotations

import sys
import threading

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.cli.show import count
from penstock.planner.breaker import signature
from penstock.runtime.progress import Finished
from penstock.tasks import Order


class Bars:
    """A bar per model on a terminal, plain lines elsewhere; written to standard error, so that output stays clean."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._lock = threading.Lock()
        self._bars: dict[str, TaskID] = {}
        self._planned: dict[str, int] = {}
        self._last_note = ""
        self._said: set[tuple[str, str]] = set()
        """By model the errors that were shown: many chunks may fail alike."""
        self._progress = Progress(
            TextColumn("{task.description:<32}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("intervals"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not sys.stderr.isatty(),
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def planned(self, orders: tuple[Order, ...]) -> None:
        with self._lock:
            for order in orders:
                self._planned[order.model] = self._planned.get(order.model, 0) + len(order.chunks)
                if order.model not in self._bars:
                    self._bars[order.model] = self._progress.add_task(order.model, total=0, note="")
                self._progress.update(self._bars[order.model], total=self._planned[order.model])

    def started(self, order: Order) -> None:
        with self._lock:
            if order.model in self._bars:
                self._progress.update(self._bars[order.model], note=order.lane)

    def finished(self, result: Finished) -> None:
        with self._lock:
            model, chunks = result.order.model, len(result.order.chunks)
            if result.outcome == "succeeded" and model in self._bars:
                self._progress.advance(self._bars[model], chunks)
            if self._progress.disable or result.error:
                self._console.print(_said(result, self._is_new(result)), soft_wrap=True, markup=False)

    def _is_new(self, result: Finished) -> bool:
        about = (result.order.model, signature(result.error or ""))
        known = about in self._said
        self._said.add(about)
        return not known

    def note(self, text: str) -> None:
        with self._lock:
            if text != self._last_note:
                self._last_note = text
                self._console.print(text, soft_wrap=True, markup=False)


def _said(result: Finished, is_new: bool) -> str:
    chunks = count(len(result.order.chunks), "interval")
    what = f"{result.order.model}: {chunks} ({result.order.lane}) {result.outcome}"
    if result.outcome == "succeeded":
        what += f", {count(result.rows, 'row')}" if result.written else ", nothing changed"
    return f"{what}, {result.seconds:.1f} s" + (f"\n  {result.error}" if result.error and is_new else "")
