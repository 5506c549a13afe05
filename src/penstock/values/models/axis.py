"""How are positions and durations written, and how are they shown?"""

from __future__ import annotations

import re
from datetime import UTC, datetime

SECOND = "second"
_NAMES = {1: "s sec secs second seconds", 60: "m min mins minute minutes", 3600: "h hour hours"}
_NAMES |= {86400: "d day days", 604800: "w week weeks"}
_UNITS = {name: seconds for seconds, names in _NAMES.items() for name in names.split()}
_DURATION = re.compile(r"(\d+)\s*([a-z]+)")
DURATION = rf"([0-9]+ *({'|'.join(_UNITS)}) *)+"
"""A duration with its units, as a pattern for whole texts."""


def duration(text: str | int) -> int:
    """Seconds in `30s`, `5 minutes`, `1h 30m`; a bare number is taken as it is."""
    if isinstance(text, int):
        return text
    plain = text.strip().lower()
    if plain.isdigit():
        return int(plain)
    total, rest = 0, plain
    while match := _DURATION.match(rest):
        count, unit = int(match[1]), match[2]
        seconds = _UNITS.get(unit)
        if seconds is None:
            break
        total, rest = total + count * seconds, rest[match.end() :].lstrip()
    if rest or not plain:
        raise ValueError(f"{text!r} is no duration; write 30s, 5 minutes, 1 hour, 1 day or a number")
    return total


def position(text: str, axis: str) -> int:
    """The position that a person typed: an integer, or on `second` a date or time (UTC without an offset)."""
    plain = text.strip()
    try:
        return int(plain)
    except ValueError:
        pass
    if axis != SECOND:
        raise ValueError(f"{text!r} is no position on the axis {axis!r}; write an integer")
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise ValueError(f"{text!r} is no position; write an integer or a time such as 2026-01-01T10:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() // 1)


def shown(value: int, axis: str) -> str:
    """`value` as people read it: a UTC time on `second`, else the number."""
    if axis != SECOND:
        return str(value)
    try:
        moment = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return str(value)
    return moment.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
