"""Which SQL statement has which name?"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements() -> dict[str, str]:
    """Every statement of `state/sql/*.sql`, by the name above it."""
    found: dict[str, str] = {}
    for file in sorted(files("penstock.state").joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            _, *pieces = _NAME.split(file.read_text(encoding="utf-8"))
            for name, text in zip(pieces[::2], pieces[1::2], strict=True):
                if name in found:
                    raise ValueError(f"two SQL statements are named {name!r}")
                found[name] = text.strip().removesuffix(";")
    return found


def statement(name: str) -> bytes:
    return statements()[name].encode()
