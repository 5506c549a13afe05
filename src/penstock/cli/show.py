"""How is an answer printed, for people and for programs?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.models.axis import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {"ok": "green", "lagging": "yellow", "blocked": "red", "failing": "bold red", "suspended": "red"}
STYLES |= {"new": "green", "rebuild": "yellow", "removed": "red", "dead": "bold red", "succeeded": "green"}

_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def console() -> Console:
    """Colours and width of the terminal; wide plain lines when there is none."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=220, no_color=True)


def print_json(value: object) -> None:
    print(json.dumps(value, default=str))  # noqa: T201


def print_table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(
            column, overflow="fold", justify="right" if column in ("rows", "seconds", "intervals") else "left"
        )
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console().print(table)


def cell(value: object) -> Text:
    from rich.text import Text

    text = "" if value is None else str(value)
    return Text(text, style=STYLES.get(text, ""))


def span(pairs: object, axis: str | None) -> str:
    """`[[s, e], …]` for people: the whole stretch, and in how many parts."""
    found = pairs if isinstance(pairs, list) else []
    if not found:
        return "nothing"
    start, end = shown(found[0][0], axis or ""), shown(found[-1][1], axis or "")
    parts = f" in {len(found)} parts" if len(found) > 1 else ""
    return f"{start} .. {end}{parts}"


def line(text: str, style: str = "") -> None:
    from rich.text import Text

    console().print(Text(text, style=style), soft_wrap=True)


def count(number: int, thing: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def seconds(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else ""


def age(value: object) -> str:
    """How long something has lasted, in its largest unit: `45 s`, `3 m`, `2 h`, `4 d`."""
    if not isinstance(value, int | float):
        return ""
    size, unit = next(((size, unit) for size, unit in _AGES if value >= size), _AGES[-1])
    return f"{int(value // size)} {unit}"


def counts(tasks: object) -> str:
    found = tasks if isinstance(tasks, Mapping) else {}
    return ", ".join(f"{count} {name}" for name, count in found.items() if count) or "none"
