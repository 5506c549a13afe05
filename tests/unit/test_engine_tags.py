"""To how many chunks is a row given?"""

from __future__ import annotations

import json
import re
import sqlite3

import pytest
from memory_tags import tags_of

from penstock.engine.spark.tags import copies, readers
from penstock.engine.values.job import Tags
from penstock.values.intervals import Interval

HOUR, DAY = 3600, 86_400
MONTH = 30 * DAY


def hours(*starts: int) -> tuple[Interval, ...]:
    return tuple(Interval(hour * HOUR, (hour + 1) * HOUR) for hour in starts)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        (Tags(hours(0, 1)), 1),
        (Tags(hours(5, 6), before=MONTH), 2 * (MONTH + HOUR) / (MONTH + 2 * HOUR)),  # not 721
        (Tags(hours(0, 2000), before=MONTH), 1),
        (Tags(tuple(Interval(s, s + 1) for s in range(3)), before=MONTH, after=MONTH), 3),
        (Tags((Interval(0, 10), Interval(10, 40)), before=5, after=5), 60 / 50),
    ],
)
def test_the_size_of_what_is_read_counts_only_chunks_of_the_batch(tags: Tags, found: float) -> None:
    assert copies(tags) == pytest.approx(found, rel=1e-5)
    assert copies(tags) <= len(tags.chunks)


@pytest.mark.parametrize(
    ("starts", "look", "most"),
    [
        ((0, 10), (7200, 0), 2),  # without an end it would be 721
        ((0, 10), (0, 7200), 2),
        ((-20, -10, 0, 20), (15, 0), 3),
        ((-20, -10, 0, 20), (0, 15), 3),
        ((3, 13, 23), (40, 40), 3),
        ((3, 13, 23), (1, 1), 2),
    ],
)
def test_a_row_is_copied_for_chunks_between_the_first_and_the_last(
    starts: tuple[int, ...], look: tuple[int, int], most: int
) -> None:
    tags = Tags(tuple(Interval(start, start + 10) for start in starts), *look)
    found = {at: starts_found(at, tags) for at in range(-150, 150)}
    assert max(map(len, found.values())) == most
    for at, several in found.items():
        assert [start for start in several if start in starts] == list(tags_of(tags, at))
    assert starts_found(None, tags) == []


def starts_found(at: int | None, tags: Tags) -> list[int]:
    """What Spark gives for the expression, worked out by SQLite with Spark's functions."""
    spelled = "null" if at is None else f"({at})"
    (answer,) = SQLITE.execute("select " + re.sub(r"(\d)L\b", r"\1", readers(spelled, tags))).fetchone()
    return json.loads(answer) if answer is not None else []


def sequence(first: int | None, last: int | None, step: int) -> str | None:
    if first is None or last is None:
        return None
    if first > last:  # arguments are worked out before `if` chooses: in Spark after it, where it would be an error
        return '["crossed"]'
    return json.dumps(list(range(first, last + 1, step)))


def known(*values: int | None) -> list[int]:
    """The greatest and the least of some values overlook NULL."""
    return [value for value in values if value is not None]


SQLITE = sqlite3.connect(":memory:")
SQLITE.create_function("pmod", 2, lambda value, by: None if value is None else value % by)
SQLITE.create_function("greatest", 2, lambda *values: max(known(*values)))
SQLITE.create_function("least", 2, lambda *values: min(known(*values)))
SQLITE.create_function("sequence", 3, sequence)
SQLITE.create_function("if", 3, lambda holds, then, other: then if holds else other)


@pytest.mark.parametrize(
    ("tags", "listed"),
    [
        (Tags(hours(0, 1, 2), before=MONTH), False),  # all between the first and the last
        (Tags(hours(0, 1, 5), before=2 * HOUR), False),  # three of the grid at most
        (Tags(hours(0, 1, 5), before=3 * HOUR), True),
        (Tags(hours(0, 700), before=MONTH), True),
        (Tags((Interval(0, 10), Interval(10, 40)), before=5), True),  # no grid
    ],
)
def test_chunks_are_listed_where_the_grid_has_more_of_them(tags: Tags, listed: bool) -> None:
    assert ("sequence(" not in readers("p", tags)) == listed
