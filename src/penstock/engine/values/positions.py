"""Which column carries positions, and which position does a value stand for?"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from penstock.engine.values.files import PositionColumn, PositionKind
from penstock.errors import SourceError
from penstock.values.models.axis import SECOND

MICROS = 1_000_000
DAY = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[str, PositionKind] = {
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "date": "date",
    "byte": "integer",
    "short": "integer",
    "integer": "integer",
    "long": "integer",
}
_MOMENT = re.compile(
    r"([+-]?\d{4,})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.](\d+))?)?)?\s*(?:Z|UTC|([+-])(\d\d):?(\d\d))?"
)


@dataclass(frozen=True, slots=True)
class PositionField:
    """A position column as one table has it; `physical` is its name in the files and statistics."""

    name: str
    physical: str
    kind: PositionKind


def position_field(schema_json: str, position: PositionColumn) -> PositionField:
    """The column of that schema (JSON as Delta spells it) that carries the positions."""
    fields = json.loads(schema_json)["fields"]
    named = [f for f in fields if f["name"] == position.name]
    named = named or [f for f in fields if f["name"].casefold() == position.name.casefold()]
    if len(named) != 1:
        raise SourceError(
            f"no column {position.name!r} to take positions from; the table has {', '.join(f['name'] for f in fields)}",
            hint="name a top-level column of the table in `position`",
        )
    field = named[0]
    kind = _KINDS.get(field["type"]) if isinstance(field["type"], str) else None
    if kind is None or (kind != "integer" and position.axis != SECOND):
        spelled = field["type"] if isinstance(field["type"], str) else field["type"]["type"]
        fitting = "a timestamp, date or integer" if position.axis == SECOND else "an integer"
        raise SourceError(
            f"column {field['name']!r} is a {spelled}; positions on the axis {position.axis!r} need {fitting} column",
            hint="name another column in `position`, or another `axis`",
        )
    physical = field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
    return PositionField(field["name"], physical, kind)


def from_micros(micros: int) -> int:
    """The position of a moment: whole seconds since 1970, rounded down also before it."""
    return micros // MICROS


def from_days(days: int) -> int:
    return days * DAY


def position_of(value: datetime | date | int) -> int:
    """The position of a value as Python or Arrow gives it; a time without a zone is UTC."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return from_micros((moment - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, date):
        return from_days(value.toordinal() - _EPOCH.toordinal())
    return value


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


def position_of_text(text: str | int, kind: PositionKind) -> int | None:
    """The position of a statistic or partition value as the log spells it; None when it cannot be read."""
    if kind == "integer":
        try:
            return int(text)
        except ValueError:
            return None
    micros = micros_of_text(str(text))
    return None if micros is None else from_micros(micros)


def _civil_days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the proleptic Gregorian calendar, of any year; `datetime` ends at 1 and 9999."""
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
