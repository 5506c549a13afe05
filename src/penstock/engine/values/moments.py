"""Which moment does a text stand for, and how is a moment spelled?"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

MICROS = 1_000_000
DAY = 86_400
PER_SECOND = {"s": 1, "ms": 1_000, "us": MICROS, "ns": 1_000_000_000}
"""By what Arrow calls the unit of a time."""
_MOMENT = re.compile(
    r"([+-]?\d{4,})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.](\d+))?)?)?\s*(?:Z|UTC|([+-])(\d\d):?(\d\d))?"
)


def micros_of_text(text: str) -> int | None:
    """Microseconds since 1970 of a time or date as logs spell it, without a zone in UTC; None when it is neither."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    fraction = int((match[7] or "").ljust(6, "0")[:6])
    offset = (int(match[9]) * 60 + int(match[10])) * 60 if match[8] else 0
    seconds = _civil_days(year, month, day) * DAY + (hour * 60 + minute) * 60 + second
    return (seconds + (offset if match[8] == "-" else -offset)) * MICROS + fraction


def day_text(days: int) -> str | None:
    """A date by its days since 1970; None outside of the years 1 to 9999."""
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def moment_text(millis: int, *, separator: str, timespec: str) -> str | None:
    """A time by its milliseconds since 1970, without a zone; None outside of the years 1 to 9999."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=millis)  # noqa: DTZ001
    except OverflowError:
        return None
    return moment.isoformat(separator, timespec)


def _civil_days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the proleptic Gregorian calendar, of any year; `datetime` ends at 1 and 9999."""
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
