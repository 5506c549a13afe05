"""Which SQL statement has which name?"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)


@cache
def statements() -> dict[str, str]:
    """Every statement of `state/sql/*.sql`, by the name above it; a part is put where others include it."""
    named: dict[str, str] = {}
    parts: dict[str, str] = {}
    for file in sorted(files("penstock.state").joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            _, *pieces = _NAME.split(file.read_text(encoding="utf-8"))
            for kind, name, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
                if name in named or name in parts:
                    raise ValueError(f"two SQL statements are named {name!r}")
                (named if kind == "name" else parts)[name] = text.strip().removesuffix(";")
    return {name: _INCLUDE.sub(lambda include: parts[include[1]], text) for name, text in named.items()}


def statement(name: str) -> bytes:
    return statements()[name].encode()
