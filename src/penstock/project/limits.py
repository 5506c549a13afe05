"""How large, how deep and how long may it be what a project says? `docs/projects.md` lists the same numbers."""

from __future__ import annotations

import re

MAX_FILE_BYTES = 256_000
MAX_SCRIPT_BYTES = 10_000_000
MAX_CHARACTERS = 256_000
"""Of a query once its template is rendered, and of anything that is made on the way there."""
MAX_RENDER_SECONDS = 1.0
MAX_NESTING = 128
"""Brackets and CASE inside each other: the parsers call themselves some twenty times for each."""
MAX_TREE = 64
"""Operators, filters and blocks of a template inside each other."""
MAX_LOOPS = 16
"""Python, which Jinja compiles to, takes twenty blocks inside each other."""
MAX_DIGITS = 1_000
MAX_NAME = 128
MAX_SCHEMA_NAME = 63
"""PostgreSQL cuts what is longer."""
MAX_SECONDS = 10**12
"""The longest time: some thirty thousand years."""
MAX_SPAN = 2**53
"""The longest stretch on an axis that does not count seconds; sums with positions still fit into 64 bits."""
MAX_COUNT = 2**31 - 1

TOO_DEEP = f"it is nested too deeply; {MAX_NESTING} levels are the most"
LONG_NUMBER = f"a number has more than {MAX_DIGITS} digits"

_PIECES = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|`[^`]*(?:`|\Z)|--[^\n]*|/\*(?:.*?\*/|.*)"""
    r"""|(?P<open>[(\[{]|\bcase\b)|(?P<close>[)\]}]|\bend\b)""",
    re.DOTALL | re.IGNORECASE,
)
_DIGITS = re.compile(rf"[0-9](?:_?[0-9]){{{MAX_DIGITS},}}")


def too_deep(text: str) -> int | None:
    """The line on which brackets and CASE stand inside each other too often; None when they do not."""
    if text.count("(") + text.count("[") + text.count("{") + text.lower().count("case") <= MAX_NESTING:
        return None
    depth = 0
    for match in _PIECES.finditer(text):
        if match.lastgroup == "open":
            depth += 1
            if depth > MAX_NESTING:
                return line_of(text, match.start())
        elif match.lastgroup == "close":
            depth = max(depth - 1, 0)
    return None


def long_number(text: str) -> int | None:
    """The line of a number with too many digits, which Python would not even read; None when there is none."""
    found = _DIGITS.search(text)
    return line_of(text, found.start()) if found else None


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def cut(text: str, most: int = 60) -> str:
    """`text` as a message can show it."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
