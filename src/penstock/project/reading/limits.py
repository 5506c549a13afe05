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
MAX_TYPES = 32
"""`array<`, `map<` and `struct<` inside each other: the parser begins anew at each of them."""
MAX_BARE_JOINS = 12
"""Joins in a row that wait for their ON or USING: the parser tries each twice, so that every one doubles its work."""
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
DEEP_TYPES = f"a type is nested too deeply; {MAX_TYPES} levels are the most"
BARE_JOINS = f"more than {MAX_BARE_JOINS} joins in a row have no ON or USING; write CROSS JOIN where that is meant"
LONG_NUMBER = f"a number has more than {MAX_DIGITS} digits"

_PIECES = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)|`[^`]*(?:`|\Z)|--[^\n]*|/\*(?:.*?\*/|.*)"""
    r"""|(?P<open>[(\[{]|\bcase\b)|(?P<close>[)\]}]|\bend\b)"""
    r"""|(?P<type>\b(?:array|map|struct)\s*<)|(?P<typed>>)|(?P<crossed>\b(?:cross|natural)\s+join\b)"""
    r"""|(?P<join>\bjoin\b)|(?P<joined>\b(?:on|using)\b)""",
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


def unreadable(sql: str) -> tuple[str, int] | None:
    """Why a parser would work on a query for too long, and the line; None when it would not."""
    line = too_deep(sql)
    if line is not None:
        return TOO_DEEP, line
    if sql.count("<") <= MAX_TYPES and sql.lower().count("join") <= MAX_BARE_JOINS:
        return None
    types = joins = 0
    for match in _PIECES.finditer(sql):
        match match.lastgroup:
            case "type":
                types += 1
            case "typed":
                types = max(types - 1, 0)
            case "join":
                joins += 1
            case "joined":
                joins = max(joins - 1, 0)
        if types > MAX_TYPES or joins > MAX_BARE_JOINS:
            return DEEP_TYPES if types > MAX_TYPES else BARE_JOINS, line_of(sql, match.start())
    return None


def long_number(text: str) -> int | None:
    """The line of a number with too many digits, which Python would not even read; None when there is none."""
    match = _DIGITS.search(text)
    return line_of(text, match.start()) if match else None


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def cut(text: str, most: int = 60) -> str:
    """`text` as a message can show it."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
