"""Do schedules fire when they say, in every time zone, through restarts and outages? (B-18)"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.policy import cadence as cadence_module
from penstock.planner.policy.cadence import PATTERN, Cadence, Cron, Every, following, parse
from penstock.state.queue import schedules as schedules_module
from penstock.state.queue.schedules import due_slots
from penstock.values.records import ScheduleRecord

EXAMPLES = effort(20)
ZONES = ("UTC", "Australia/Brisbane", "America/New_York", "Europe/Berlin")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(spec: str, after: str, count: int, anchor: datetime = EPOCH) -> list[str]:
    one, now, found = parse(spec), at(after), []
    for _ in range(count):
        now = following(one, now, anchor)
        found.append(f"{now:%Y-%m-%d %H:%M}" + (f":{now:%S}" if now.second else ""))
    return found


# What the words mean


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ("@every 1m", 60),
        ("@every 30s", 30),
        ("@every 5 minutes", 300),
        ("@every 1 hour", 3600),
        ("@every 1h 30m", 5400),
        ("@every 1 day", 86400),
        ("@every  2 weeks", 1209600),
        ("300", 300),
    ],
)
def test_s0_45_a_period_is_any_duration_or_a_number_of_seconds(spec: str, seconds: int) -> None:
    assert parse(spec) == Every(seconds)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * sun"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 jan *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_s0_45_a_descriptor_is_short_for_five_fields(name: str, fields: str) -> None:
    assert parse(name) == parse(fields)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("*/7 * * * *", ["03-06 22:56", "03-06 23:00", "03-06 23:07"]),
        ("5/20 23 * * *", ["03-06 23:05", "03-06 23:25", "03-06 23:45", "03-07 23:05"]),
        ("10-30/10,55 22,1 * * *", ["03-06 22:55", "03-07 01:10", "03-07 01:20", "03-07 01:30", "03-07 01:55"]),
        ("0 9 * * mon-fri", ["03-09 09:00", "03-10 09:00", "03-11 09:00", "03-12 09:00", "03-13 09:00", "03-16 09:00"]),
        ("0 9 * * Mon,WED", ["03-09 09:00", "03-11 09:00", "03-16 09:00"]),
        ("0 0 1 * *", ["04-01 00:00", "05-01 00:00"]),
        ("30 6 1 Jan-Mar,7 *", ["07-01 06:30"]),
        ("0 0 * * 7", ["03-08 00:00", "03-15 00:00"]),
        ("0 0 * * 0", ["03-08 00:00", "03-15 00:00"]),
        ("0 0 * * fri-sun", ["03-07 00:00", "03-08 00:00", "03-13 00:00"]),
        ("0 0 * * 5-7", ["03-07 00:00", "03-08 00:00", "03-13 00:00"]),
        ("0 0 * * sun-sun", ["03-08 00:00", "03-15 00:00"]),
        ("0 0 13 * fri", ["03-13 00:00", "03-20 00:00", "03-27 00:00", "04-03 00:00", "04-10 00:00", "04-13 00:00"]),
        ("0 0 */2 * mon", ["03-09 00:00", "03-23 00:00", "04-13 00:00"]),
        ("0 0 13 * *", ["03-13 00:00", "04-13 00:00"]),
        ("0 0 31 * *", ["03-31 00:00", "05-31 00:00", "07-31 00:00"]),
    ],
)
def test_cron_fields_mean_what_they_mean_to_cron(spec: str, expected: list[str]) -> None:
    assert slots(spec, "2026-03-06 22:50:30", len(expected)) == [f"2026-{one}" for one in expected]


def test_rare_dates_are_found_at_once() -> None:
    started = time.perf_counter()
    assert slots("0 0 29 2 *", "2026-01-01", 2) == ["2028-02-29 00:00", "2032-02-29 00:00"]
    assert slots("0 0 29 2 *", "2096-03-01", 1) == ["2104-02-29 00:00"]
    assert slots("0 0 29 2 */7", "2088-03-01", 1) == ["2128-02-29 00:00"], "a Sunday"
    assert time.perf_counter() - started < 2


def test_a_slot_is_strictly_later_to_the_microsecond() -> None:
    hourly, noon, tick = parse("@hourly"), at("2026-03-01 12:00"), timedelta(microseconds=1)
    assert following(hourly, noon - tick, EPOCH) == noon
    assert following(hourly, noon, EPOCH) == at("2026-03-01 13:00")
    assert following(parse("60"), noon - tick, noon) == noon
    assert following(parse("60"), noon, noon) == noon + timedelta(minutes=1)


def test_a_period_keeps_the_fraction_of_its_anchor() -> None:
    anchor = at("2026-03-01 12:00:07.123456")
    assert following(parse("@every 1m"), at("2026-03-01 12:05"), anchor) == at("2026-03-01 12:05:07.123456")


@pytest.mark.parametrize("spec", ["@every 1h", "0 12 * * *"])
def test_moments_may_come_in_any_zone_but_never_in_none(spec: str) -> None:
    noon, one = at("2026-03-08 12:00"), parse(spec)
    found = following(one, noon, EPOCH)
    assert found.tzinfo is UTC
    for other in (timezone(timedelta(hours=-9)), ZoneInfo("America/New_York")):
        assert following(one, noon.astimezone(other), EPOCH.astimezone(other)) == found
    for after, anchor in ((noon.replace(tzinfo=None), EPOCH), (noon, EPOCH.replace(tzinfo=None))):
        with pytest.raises(ValueError, match="time zone"):
            following(one, after, anchor)


def test_hours_of_summer_time_are_counted_and_not_read_off_the_wall() -> None:
    new_york = ZoneInfo("America/New_York")
    before = datetime(2026, 3, 7, 12, tzinfo=new_york)
    found = following(parse("@every 1 day"), datetime(2026, 3, 8, 11, tzinfo=new_york), before)
    assert found - before.astimezone(UTC) == timedelta(days=1)


# Mistakes


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("0 0 31 2 *", "'31 2 *' is a date that never comes"),
        ("0 0 30,31 feb *", "'30,31 feb *' is a date that never comes"),
        ("0 0 31 4,6,9,11 */2", "is a date that never comes"),
        ("61 * * * *", "minute: 61 is not between 0 and 59"),
        ("* 24 * * *", "hour: 24 is not between 0 and 23"),
        ("* * 0 * *", "day of month: 0 is not between 1 and 31"),
        ("* * * 13 *", "month: 13 is not between 1 and 12"),
        ("* * * * 1-8", "day of week: 8 is not between 0 and 7, in '1-8'"),
        ("* * * foo *", "month: 'foo' is no number from 1 to 12 nor a name such as jan"),
        ("mon * * * *", "minute: 'mon' is no number from 0 to 59"),
        ("1,,2 * * * *", "minute: '' is no number"),
        ("* * 10-5 * *", "day of month: the range '10-5' runs backwards"),
        ("* * * * sat-mon", "day of week: the range 'sat-mon' runs backwards"),
        ("*/0 * * * *", "minute: the step '0' in '*/0' must be"),
        ("* */x * * *", "hour: the step 'x' in '*/x' must be"),
        ("* * * *", "there are 4 fields, but a cron line has five: minute, hour, day of month, month, day of week"),
        ("0 0 0 1 1 *", "there are 6 fields"),
        ("@often", "there is no '@often'; there are @every, @hourly"),
        ("@every", "@every needs a duration"),
        ("@every soon", "@every needs a duration such as 30s, 5 minutes, 1 hour or 1 day, not 'soon'"),
        ("@every 300", "@every needs a duration"),
        ("@every 0s", "must be at least a second"),
        ("@every 6000 weeks", "at most a hundred years"),
        ("0", "must be at least a second"),
        ("-5", "'-5' is no schedule; write '@every 1m'"),
        ("²", "is no schedule"),
        ("soon", "is no schedule"),
        ("", "is no schedule"),
        ("off", "is no schedule"),
    ],
)
def test_a_mistake_names_the_field_and_what_is_wrong_with_it(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse(spec)


# Any cron line, against a calendar that is walked


@dataclass(frozen=True)
class Line:
    """A cron line and, made without reading it, what each field lets through."""

    text: str
    allowed: tuple[frozenset[int], ...]

    def on_day(self, day: datetime) -> bool:
        _, _, dom, _, dow = self.text.split()
        of_month, of_week = day.day in self.allowed[2], (day.weekday() + 1) % 7 in self.allowed[4]
        either = dom[0] != "*" and dow[0] != "*"
        return day.month in self.allowed[3] and (of_month or of_week if either else of_month and of_week)

    def has(self, moment: datetime) -> bool:
        return self.on_day(moment) and moment.minute in self.allowed[0] and moment.hour in self.allowed[1]


NAMES = {
    3: dict(enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)),
    4: dict(enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])),
}
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


@st.composite
def parts(draw: st.DrawFn, field: int) -> tuple[str, set[int]]:
    low, high = LIMITS[field]
    kind = draw(st.sampled_from(["*", "*", "*/", "one", "one/", "range", "range/"]))
    step = draw(st.integers(1, high + 1)) if kind.endswith("/") else 1
    suffix = f"/{step}" if kind.endswith("/") else ""
    if kind.startswith("*"):
        return f"*{suffix}", set(range(low, high + 1, step))
    first, last = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))

    def written(value: int) -> str:
        return draw(st.sampled_from([str(value), NAMES[field][value].upper()])) if field in NAMES else str(value)

    if kind == "one":
        return written(first), {first}
    if kind == "one/":
        return f"{written(first)}{suffix}", set(range(first, high + 1, step))
    return f"{written(first)}-{written(last)}{suffix}", set(range(first, last + 1, step))


@st.composite
def lines(draw: st.DrawFn) -> Line:
    words, allowed = [], []
    for field in range(5):
        found = draw(st.lists(parts(field), min_size=1, max_size=2))
        words.append(",".join(text for text, _ in found))
        allowed.append(frozenset[int]().union(*(values for _, values in found)))
    return Line(" ".join(words), tuple(allowed))


moments = st.datetimes(datetime(2023, 1, 1), datetime(2031, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
cadences: st.SearchStrategy[Cadence] = st.integers(1, 10**6).map(Every) | lines().map(lambda one: one.text).filter(
    lambda text: not refused(text)
).map(parse)


def refused(spec: str) -> str:
    try:
        parse(spec)
    except ValueError as error:
        return str(error)
    return ""


def walked(line: Line, after: datetime) -> datetime | None:
    """The first minute after `after` that fits; days that do not fit are not looked into."""
    day = after.replace(hour=0, minute=0, second=0, microsecond=0)
    for _ in range(41 * 366):
        if line.on_day(day):
            minutes = (day + timedelta(minutes=count) for count in range(24 * 60))
            found = next((one for one in minutes if one > after and line.has(one)), None)
            if found is not None:
                return found
        day += timedelta(days=1)
    return None


@EXAMPLES
@given(lines(), moments)
def test_following_finds_what_a_walk_through_the_calendar_finds(line: Line, after: datetime) -> None:
    expected = walked(line, after)
    if expected is None:
        assert "never comes" in refused(line.text)
    else:
        assert following(parse(line.text), after, EPOCH) == expected


@EXAMPLES
@given(cadences, moments, moments)
def test_slots_are_strictly_increasing_and_none_is_left_out(one: Cadence, after: datetime, anchor: datetime) -> None:
    first = following(one, after, anchor)
    second = following(one, first, anchor)
    assert after < first < second
    between = first + (second - first) / 2
    assert following(one, between, anchor) == second
    assert following(one, first - timedelta(microseconds=1), anchor) == first


@EXAMPLES
@given(st.integers(1, 10**6), moments, moments, st.integers(0, 10**6))
def test_a_period_never_drifts(seconds: int, anchor: datetime, after: datetime, count: int) -> None:
    found = following(Every(seconds), after, anchor)
    assert (found - anchor) % timedelta(seconds=seconds) == timedelta(0)
    assert timedelta(0) < found - after <= timedelta(seconds=seconds)
    # whoever counts from the last slot counts the same slots
    later = after + timedelta(seconds=count)
    assert following(Every(seconds), later, found) == following(Every(seconds), later, anchor)


@EXAMPLES
@given(
    lines().map(lambda one: one.text) | st.from_regex(PATTERN, fullmatch=True, alphabet=st.characters(codec="ascii"))
)
def test_editors_and_the_loader_agree_but_for_what_needs_arithmetic(spec: str) -> None:
    assert re.fullmatch(PATTERN, spec)
    assert re.search(
        "^$|never comes|runs backwards|between two slots|must be a whole number|is no schedule", refused(spec)
    )


@EXAMPLES
@given(st.text(alphabet="0123456789*/,- monjafe@", max_size=14))
def test_any_text_is_a_schedule_or_a_value_error(spec: str) -> None:
    if not refused(spec):
        assert isinstance(parse(spec), Every | Cron)


# A month on a clock of our own, with summer time beginning in New York (8 March) and in Berlin (29 March)

BEGIN, END = at("2026-02-27 18:00"), at("2026-04-02 06:00")
WORKDAYS = [2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 16, 17, 18, 19, 20, 23, 24, 25, 26, 27, 30, 31]
MONTH = {
    "0 9 * * mon-fri": [*(f"03-{day:02} 09:00" for day in WORKDAYS), "04-01 09:00"],
    "0 0 1 * *": ["03-01 00:00", "04-01 00:00"],
    "30 2 8,29 * *": ["03-08 02:30", "03-29 02:30"],
    "0 1-3 29 mar *": ["03-29 01:00", "03-29 02:00", "03-29 03:00"],
    "@weekly": ["03-01 00:00", "03-08 00:00", "03-15 00:00", "03-22 00:00", "03-29 00:00"],
    "@every 1 week": ["03-06 18:00", "03-13 18:00", "03-20 18:00", "03-27 18:00"],
}


def fired(
    spec: str, ticks: Iterator[datetime], restart: Callable[[], bool] = lambda: False
) -> list[tuple[datetime, datetime]]:
    """Each slot with the moment it fired. Between two ticks there is only the row, which may be read anywhere."""
    row = ScheduleRecord("shop.m", "forward", spec, following(parse(spec), BEGIN, BEGIN), None)
    found = []
    for now in ticks:
        if restart():
            row = replace(row, next_at=row.next_at.astimezone())
        for slot in due_slots([row], now):
            found.append((slot.at, now))
            row = replace(row, next_at=slot.next_at, last_slot=slot.at)
    return found


def clock(*outages: tuple[datetime, datetime], every: float = 397.7) -> Iterator[datetime]:
    now = BEGIN
    while now < END:
        if not any(down <= now < up for down, up in outages):
            yield now
        now += timedelta(seconds=every)


def shown(moments: list[tuple[datetime, datetime]]) -> list[str]:
    return [f"{slot.astimezone(UTC):%m-%d %H:%M}" for slot, _ in moments]


def test_the_zones_of_this_test_change_their_clocks_in_that_month(zone: str) -> None:
    offsets = {time.localtime(one.timestamp()).tm_gmtoff for one in (BEGIN, END)}
    assert len(offsets) == (2 if zone in ("America/New_York", "Europe/Berlin") else 1)


@pytest.mark.parametrize("spec", MONTH)
def test_b18_a_month_of_slots_is_exact_in_every_zone_and_through_restarts(zone: str, spec: str) -> None:
    chance = random.Random(spec)
    found = fired(spec, clock(), restart=lambda: chance.random() < 0.01)
    assert shown(found) == MONTH[spec]
    assert all(timedelta(0) <= now - slot < timedelta(seconds=398) for slot, now in found)


@pytest.mark.parametrize(("spec", "count"), [("@every 25 minutes", 1929), ("*/25 * * * *", 2412), ("@hourly", 804)])
def test_b18_frequent_slots_come_one_by_one_and_none_twice(zone: str, spec: str, count: int) -> None:
    chance = random.Random(spec)
    found = fired(spec, clock(), restart=lambda: chance.random() < 0.01)
    slots_fired = [slot for slot, _ in found]
    assert abs(len(slots_fired) - count) <= 1
    assert len(set(slots_fired)) == len(slots_fired)
    steps = {later - earlier for earlier, later in pairwise(slots_fired)}
    expected = {"@every 25 minutes": {25}, "*/25 * * * *": {25, 10}, "@hourly": {60}}[spec]
    assert steps == {timedelta(minutes=one) for one in expected}


OUTAGE = (at("2026-03-07 12:00"), at("2026-03-12 10:31"))


@pytest.mark.parametrize("spec", ["0 9 * * mon-fri", "@hourly", "@every 5 minutes", "30 2 8,29 * *", "@weekly"])
def test_b18_an_outage_is_caught_up_with_once(spec: str) -> None:
    down, up = OUTAGE
    found = fired(spec, clock(OUTAGE, every=150))
    late = [(slot, now) for slot, now in found if now - slot >= timedelta(seconds=150)]
    assert len(late) == 1
    assert down <= late[0][0] < up <= late[0][1] < up + timedelta(seconds=150)
    usual = [slot for slot, _ in fired(spec, clock(every=150)) if not down <= slot < up]
    assert [slot for slot, _ in found if slot != late[0][0]] == usual, "after the outage all is as it was"


def test_b18_an_outage_without_a_slot_is_nothing() -> None:
    assert shown(fired("0 0 1 * *", clock(OUTAGE))) == MONTH["0 0 1 * *"]


@pytest.mark.parametrize("spec", [*MONTH, "@hourly", "60"])
def test_b18_nothing_fires_at_once(spec: str) -> None:
    applied = at("2026-03-02 09:00")
    assert following(parse(spec), applied, applied) > applied


# Controls: what these tests would see if the rule were another


def test_negative_control_a_calendar_in_another_zone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cadence_module, "UTC", ZoneInfo("America/New_York"))
    assert shown(fired("0 9 * * mon-fri", clock())) != MONTH["0 9 * * mon-fri"]


def test_negative_control_cron_as_a_constant_period_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(one: Cadence, after: datetime, anchor: datetime) -> datetime:
        first = following(one, BEGIN, BEGIN)
        return anchor + (following(one, first, BEGIN) - first)

    monkeypatch.setattr(schedules_module, "following", constant)
    assert shown(fired("0 9 * * mon-fri", clock())) != MONTH["0 9 * * mon-fri"]


def test_negative_control_replayed_slots_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules_module, "following", lambda one, after, anchor: following(one, anchor, anchor))
    found = fired("@hourly", clock(OUTAGE, every=150))
    assert len([1 for slot, now in found if now - slot >= timedelta(seconds=150)]) > 100


def test_negative_control_a_period_that_counts_from_now_drifts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules_module, "following", lambda one, after, anchor: following(one, after, after))
    assert any(slot.second for slot, _ in fired("@every 1 week", clock()))
