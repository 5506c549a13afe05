"""Is what a status says of many ranges only made when somebody reads it?"""

from __future__ import annotations

import json

import pytest

from penstock.answers.pairs import Pairs, listed, pairs
from penstock.cli import show
from penstock.values.intervals import MIN_POSITION, IntervalSet, ranges


def test_they_read_as_a_list_of_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    found = pairs(ranges((0, 10), (20, 30), (40, 50)))
    assert found == [[0, 10], [20, 30], [40, 50]] == list(found)
    assert (len(found), found[0], found[-1], found[1:]) == (3, [0, 10], [40, 50], [[20, 30], [40, 50]])
    show.print_json({"coverage": found})
    assert json.loads(capsys.readouterr().out) == {"coverage": [[0, 10], [20, 30], [40, 50]]}


def test_only_they_become_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.dumps([pairs(ranges((0, 10)))], default=listed) == "[[[0, 10]]]"
    with pytest.raises(TypeError, match="set is no JSON"):
        json.dumps({1}, default=listed)
    show.print_json({"raw": b"ab", "more": bytearray(b"c")})
    assert json.loads(capsys.readouterr().out) == {"raw": "b'ab'", "more": "bytearray(b'c')"}


def test_what_reaches_back_without_end_is_not_among_them() -> None:
    assert pairs(IntervalSet((MIN_POSITION, 5, 7, 9))) == [[7, 9]]
    assert not pairs(IntervalSet())


def test_the_stretch_for_people_needs_two_of_half_a_million(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pairs(IntervalSet(tuple(range(1_000_000))))
    monkeypatch.setattr(Pairs, "__iter__", lambda _: pytest.fail("all of them were made"))
    assert show.span(found, "number") == "0 .. 999999 in 500000 parts"
