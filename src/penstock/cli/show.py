"""How is an answer printed, for people and for programs?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from shutil import get_terminal_size
from unicodedata import combining, east_asian_width

import click

from penstock.answers.pairs import Pairs, listed
from penstock.values.models.axis import shown

STYLES = {"ok": "green", "lagging": "yellow", "blocked": "red", "failing": "bold red", "suspended": "red"}
STYLES |= {"new": "green", "rebuild": "yellow", "removed": "red", "dead": "bold red", "succeeded": "green"}

_RIGHT = ("rows", "seconds", "intervals")
_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def print_json(value: object) -> None:
    print(json.dumps(value, default=_jsonable))  # noqa: T201


def _jsonable(value: object) -> object:
    return listed(value) if isinstance(value, Pairs) else str(value)


def print_table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Columns as wide as their widest cell; where that is more than the terminal has, long cells are folded."""
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if not _plain("".join(map("".join, cells))) or sum(widths) + 2 * len(widths) - 2 > _width():
        _print_folded(columns, cells, _width())
        return
    print(_row(columns, columns, widths, "bold"))  # noqa: T201
    for row in cells:
        print(_row(columns, row, widths))  # noqa: T201


def _row(columns: Sequence[str], row: Sequence[str], widths: Sequence[int], style: str = "") -> str:
    padded = (
        text.rjust(width) if column in _RIGHT else text.ljust(width)
        for column, text, width in zip(columns, row, widths, strict=True)
    )
    return "  ".join(
        padded_text if not (shade := style or STYLES.get(text, "")) else _styled(padded_text, shade)
        for padded_text, text in zip(padded, row, strict=True)
    )


def _print_folded(columns: Sequence[str], cells: Iterable[Iterable[str]], width: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in _RIGHT else "left")
    for row in cells:
        table.add_row(*(Text(text, style=STYLES.get(text, "")) for text in row))
    # a wide plain page where there is no terminal
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=width, no_color=True)
    console.print(table)


def _width() -> int:
    return get_terminal_size().columns if sys.stdout.isatty() else 220


def _plain(text: str) -> bool:
    """Every character is one column wide."""
    if text.isascii():
        return text.isprintable()
    return text.isprintable() and all(
        east_asian_width(character) not in "WF" and not combining(character) for character in text
    )


def _styled(text: str, style: str) -> str:
    """For people at a terminal only; a command that prints in colour need not import a library for it."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or not style:
        return text
    words = style.split()
    return click.style(text, fg=next((word for word in words if word != "bold"), None), bold="bold" in words or None)


def span(pairs: object, axis: str | None) -> str:
    """`[[s, e], …]` for people: the whole stretch, and in how many parts."""
    ranges = pairs if isinstance(pairs, Sequence) else ()
    if not ranges:
        return "nothing"
    start, end = shown(ranges[0][0], axis or ""), shown(ranges[-1][1], axis or "")
    parts = f" in {len(ranges)} parts" if len(ranges) > 1 else ""
    return f"{start} .. {end}{parts}"


def line(text: str, style: str = "") -> None:
    print(_styled(text, style))  # noqa: T201


def count(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else ""


def age(value: object) -> str:
    """How long something has lasted, in its largest unit: `45 s`, `3 m`, `2 h`, `4 d`."""
    if not isinstance(value, int | float):
        return ""
    size, unit = next(((size, unit) for size, unit in _AGES if value >= size), _AGES[-1])
    return f"{int(value // size)} {unit}"


def counts(tasks: object) -> str:
    states = tasks if isinstance(tasks, Mapping) else {}
    return ", ".join(f"{count} {name}" for name, count in states.items() if count) or "none"
