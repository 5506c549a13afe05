"""Does the time zone of the machine change anything? (B-48)"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from observed import model, observation, source, strict

from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.plan import plan
from penstock.planner.readiness.words import length, place, span
from penstock.project import RefUse, render, unpack
from penstock.values.intervals import Interval, ranges
from penstock.values.models import IntervalModel
from penstock.values.models import axis as axis_module
from penstock.values.models.axis import SECOND, duration, position, shown

ZONES = ("UTC", "Australia/Brisbane", "America/New_York")
SPRING = 1_772_953_200
"""2026-03-08 07:00 in UTC; in New York the clock goes from 02:00 to 03:00."""
AUTUMN = 1_793_512_800
"""2026-11-01 06:00 in UTC; in New York the hour from 01:00 to 02:00 comes a second time."""
MOMENTS = [
    (0, "1970-01-01 00:00", "1970-01-01T00:00:00Z"),
    (SPRING - 1, "2026-03-08 06:59:59", "2026-03-08T06:59:59Z"),
    (SPRING, "2026-03-08 07:00", "2026-03-08T07:00:00Z"),
    (SPRING - 4 * 3600 - 1800, "2026-03-08 02:30", "2026-03-08T02:30:00Z"),
    (AUTUMN - 1, "2026-11-01 05:59:59", "2026-11-01T05:59:59Z"),
    (AUTUMN, "2026-11-01 06:00", "2026-11-01T06:00:00Z"),
    (AUTUMN - 5 * 3600 + 1800, "2026-11-01 01:30", "2026-11-01T01:30:00Z"),
]
QUERY = "select {{ bounds.start_time }} as at from {{ ref('raw.a') }} where {{ in_bounds('at') }}"
FILES = {
    "penstock.yml": "name: shop\ndatabases: {external: raw, transformation: shop}\n",
    "models/external/a.yml": "location: x\nposition: at\n",
    "models/transformations/m.sql": f"---\ninterval: 1h\nposition: at\nlimits: {{min: 2026-03-08T02:30}}\n---\n{QUERY}",
}


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_the_zones_of_this_test_are_really_other_zones(zone: str) -> None:
    hours = {"UTC": (0, 0), "Australia/Brisbane": (10, 10), "America/New_York": (-5, -4)}[zone]
    assert tuple(time.localtime(at).tm_gmtoff // 3600 for at in (SPRING - 1, SPRING)) == hours


@pytest.mark.parametrize(("at", "text", "iso"), MOMENTS)
def test_b48_positions_are_read_and_shown_in_utc_everywhere(zone: str, at: int, text: str, iso: str) -> None:
    assert shown(at, SECOND) == text
    assert place(at, SECOND) == text
    assert [position(one, SECOND) for one in (text, iso, iso.removesuffix("Z"), str(at))] == [at] * 4
    assert position(f"{iso.removesuffix('Z')}-05:00", SECOND) == at + 5 * 3600


def test_b48_a_day_has_24_hours_everywhere(zone: str) -> None:
    assert (duration("1 day"), duration("1h 30m"), duration("1 week")) == (86400, 5400, 604800)
    days = [position(f"2026-{day}", SECOND) for day in ("03-08", "03-09", "11-01", "11-02")]
    assert (days[1] - days[0], days[3] - days[2]) == (86400, 86400)
    assert length(86400, SECOND) == "1 day"
    assert span(Interval(days[0], days[1]), SECOND) == "[2026-03-08 00:00, 2026-03-09 00:00)"


@pytest.mark.parametrize(("at", "text", "iso"), MOMENTS)
def test_b48_a_query_says_the_same_bounds_everywhere(zone: str, at: int, text: str, iso: str) -> None:
    project = unpack({name: one.encode() for name, one in FILES.items()}, Path("/p"), {})
    made = project.graph.models["shop.m"]
    assert isinstance(made, IntervalModel)
    assert made.limits.min == SPRING - 4 * 3600 - 1800
    named: Callable[[RefUse], str] = lambda use: use.model  # noqa: E731
    sql = render(made, project, Interval(at, at + 86400), ["raw.a"], named, at, "forward")
    end = shown(at + 86400, SECOND).replace(" ", "T")
    end = f"{end}Z" if end.count(":") == 2 else f"{end}:00Z"
    assert sql == (f"select timestamp'{iso}' as at from raw.a where (at >= timestamp'{iso}' and at < timestamp'{end}')")


@pytest.mark.parametrize(
    ("change", "first", "last"),
    [(SPRING, "2026-03-08 06:00", "2026-03-08 08:00"), (AUTUMN, "2026-11-01 05:00", "2026-11-01 07:00")],
)
def test_b48_the_planner_says_the_same_words_everywhere(zone: str, change: int, first: str, last: str) -> None:
    one = model(strict(3600), "raw.a", axis=SECOND)
    begin = change - 2 * 3600
    seen = observation(one, source("raw.a", begin, change + 5400), covered=ranges((begin, change - 3600)))
    assert [order.reason for order in plan(seen)] == [f"new positions from {first} to {last}"]
    said = explain(seen, change + 3600)
    assert said.chunk == Interval(change + 3600, change + 7200)
    assert f"needs up to {shown(change + 7200, SECOND)}, has {shown(change + 5400, SECOND)}" in said.reason


def test_negative_control_local_time_is_noticed(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(datetime):
        @classmethod
        def fromtimestamp(cls, value: float, tz: object = None) -> datetime:
            return datetime.fromtimestamp(value)  # noqa: DTZ006

    monkeypatch.setattr(axis_module, "datetime", Local)
    assert (shown(SPRING, SECOND) == "2026-03-08 07:00") == (zone == "UTC")
