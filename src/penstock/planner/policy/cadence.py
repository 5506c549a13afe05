"""When is the next slot of a schedule?"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from functools import lru_cache

from penstock.values.models.axis import DURATION, duration

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST = 36_525 * 86_400
_CALENDAR_YEARS = 400
"""After so many years the same dates fall on the same weekdays again."""
WRITTEN_AS = "'@every 1m', '@hourly', five cron fields or a number of seconds"


@dataclass(frozen=True, slots=True)
class Every:
    """A slot each `seconds`, counted from an anchor."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Cron:
    """A slot in each minute of the UTC calendar that fits; every set is sorted and not empty."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """0 is Sunday."""
    either: bool
    """Both the day of the month and the weekday are restricted: one of them is enough."""

    def has(self, day: date) -> bool:
        """The day itself fits; its month is not looked at."""
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either else of_month and of_week


Cadence = Every | Cron


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    """What `*` ends with."""
    digits: str
    """The numbers, as a pattern."""
    names: tuple[str, ...] = ()
    """Of the numbers from `low` on."""

    @property
    def top(self) -> int:
        """The largest number that may be written."""
        return 7 if self.names is _WEEKDAYS else self.high

    @property
    def pattern(self) -> str:
        named = ("".join(f"[{letter}{letter.upper()}]" for letter in name) for name in self.names)
        value = f"({'|'.join((self.digits, *named))})"
        part = rf"(\*|{value}(-{value})?)(/0*[1-9][0-9]*)?"
        return f"{part}(,{part})*"

    def read(self, text: str) -> tuple[int, ...]:
        return tuple(sorted({value for part in text.split(",") for value in self._part(part)}))

    def _part(self, part: str) -> Iterator[int]:
        span, stepped, step_text = part.partition("/")
        step = _whole(step_text) if stepped else 1
        if not step:
            raise ValueError(f"{self.name}: the step {step_text!r} in {part!r} must be a whole number of at least 1")
        first_text, ranged, last_text = span.partition("-")
        if span == "*":
            first, last = self.low, self.high
        else:
            first = self._number(first_text, part)
            last = self._number(last_text, part) if ranged else self.high if stepped else first
        if ranged and first > last == 0 and self.top == 7:
            last = 7  # a week may end with Sunday, whichever way it is written
        if ranged and first > last:
            raise ValueError(f"{self.name}: the range {span!r} runs backwards")
        return (value % 7 if self.top == 7 else value for value in range(first, max(first, last) + 1, step))

    def _number(self, text: str, part: str) -> int:
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.low
        value = _whole(text)
        inside = f", in {part!r}" if text != part else ""
        if value is None:
            known = f" nor a name such as {self.names[0]}" if self.names else ""
            raise ValueError(f"{self.name}: {text!r} is no number from {self.low} to {self.top}{known}{inside}")
        if not self.low <= value <= self.top:
            raise ValueError(f"{self.name}: {text} is not between {self.low} and {self.top}{inside}")
        return value


_FIELDS = (
    _Field("minute", 0, 59, "[0-5]?[0-9]"),
    _Field("hour", 0, 23, "[01]?[0-9]|2[0-3]"),
    _Field("day of month", 1, 31, "0?[1-9]|[12][0-9]|3[01]"),
    _Field("month", 1, 12, "0?[1-9]|1[0-2]", _MONTHS),
    _Field("day of week", 0, 6, "0?[0-7]", _WEEKDAYS),
)
PATTERN = "|".join(
    (f"@every +{DURATION}", *_DESCRIPTORS, " +".join(field.pattern for field in _FIELDS), "0*[1-9][0-9]*")
)
"""For editors: what can be said without arithmetic. `parse` decides."""


@lru_cache(maxsize=4096)
def parse(spec: str) -> Cadence:
    """The cadence that `spec` says; a ValueError names the field at fault."""
    plain = spec.strip()
    first, *rest = plain.split() or [""]
    if first == "@every":
        return _every(" ".join(rest))
    if first.startswith("@"):
        if plain not in _DESCRIPTORS:
            raise ValueError(f"there is no {plain!r}; there are @every, {', '.join(_DESCRIPTORS)}")
        return parse(_DESCRIPTORS[plain])
    if not rest:
        seconds = _whole(plain)
        if seconds is None:
            raise ValueError(f"{spec!r} is no schedule; write {WRITTEN_AS}")
        return _period(seconds)
    return _cron([first, *rest])


def following(cadence: Cadence, after: datetime, anchor: datetime) -> datetime:
    """The first slot strictly after `after`, in UTC; only `Every` is counted from `anchor`."""
    if after.tzinfo is None or anchor.tzinfo is None:
        raise ValueError("a slot is sought between moments that have a time zone")
    # in UTC first: between two moments of one zone with summer time Python would count hours on the wall clock
    after, anchor = after.astimezone(UTC), anchor.astimezone(UTC)
    match cadence:
        case Every(seconds=seconds):
            period = timedelta(seconds=seconds)
            return anchor + ((after - anchor) // period + 1) * period
        case Cron():
            return _slot(cadence, after.replace(second=0, microsecond=0) + timedelta(minutes=1))


def _slot(cron: Cron, earliest: datetime) -> datetime:
    today, now = earliest.date(), (earliest.hour, earliest.minute)
    for day in _days(cron, today):
        for hour in cron.hours:
            for minute in cron.minutes:
                if day > today or (hour, minute) >= now:
                    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
    raise ValueError(f"no slot at {earliest:%Y-%m-%d %H:%M} or later")


def _days(cron: Cron, start: date) -> Iterator[date]:
    """Every day from `start` on that fits."""
    for year in range(start.year, min(start.year + _CALENDAR_YEARS, MAXYEAR) + 1):
        for month in cron.months:
            if (year, month) >= (start.year, start.month):
                days = (date(year, month, number) for number in range(1, monthrange(year, month)[1] + 1))
                yield from (day for day in days if day >= start and cron.has(day))


def _every(text: str) -> Every:
    if not re.fullmatch(DURATION, text):
        raise ValueError(f"@every needs a duration such as 30s, 5 minutes, 1 hour or 1 day, not {text!r}")
    return _period(duration(text))


def _period(seconds: int) -> Every:
    if not 1 <= seconds <= _LONGEST:
        raise ValueError("the time between two slots must be at least a second and at most a hundred years")
    return Every(seconds)


def _cron(words: list[str]) -> Cron:
    if len(words) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise ValueError(f"there are {len(words)} fields, but a cron line has five: {names}")
    minutes, hours, days, months, weekdays = (field.read(word) for field, word in zip(_FIELDS, words, strict=True))
    # as Vixie cron has it: a field that begins with * is not restricted, `*/2` included
    either = not words[2].startswith("*") and not words[4].startswith("*")
    cron = Cron(minutes, hours, days, months, weekdays, either)
    if next(_days(cron, date(2000, 1, 1)), None) is None:
        raise ValueError(f"day of month, month, day of week: {' '.join(words[2:])!r} is a date that never comes")
    return cron


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None
