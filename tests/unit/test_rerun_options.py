"""Which calls of `rerun` make sense, and how are their answers printed?"""

from __future__ import annotations

from typing import Any

import pytest
from written_project import HOURLY, SHOP, read

from penstock.cli import show
from penstock.cli.rerun import Rerunning, positions
from penstock.errors import UsageError
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, IntervalSet
from penstock.values.models import Source

SOURCE = Source(name="raw.s", file="s.yml", location="./s", position="n", axis="block")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"reset": True, "start": "1"}, ("--reset", "--from")),
        ({"reset": True, "end": "1"}, ("--reset", "--to")),
        ({"reset": True, "where": "x"}, ("--reset", "--where")),
        ({"reset": True, "failed": True}, ("--reset", "--failed")),
        ({"reset": True, "cascade": "eager"}, ("--reset", "--cascade")),
        ({"failed": True, "start": "1"}, ("--failed", "--from")),
        ({"failed": True, "where": "x"}, ("--failed", "--where")),
        ({"failed": True, "cascade": "eager"}, ("--failed", "--cascade")),
        ({"cascade": "always"}, ("--cascade", "eager")),
    ],
)
def test_options_that_contradict_each_other_are_both_named(options: dict[str, Any], named: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        Rerunning(**options)
    assert all(name in caught.value.message for name in named)


def test_a_range_may_be_open_at_either_end() -> None:
    assert positions(SOURCE, "5", "9") == IntervalSet((5, 9))
    assert positions(SOURCE, "5", None) == IntervalSet((5, MAX_POSITION))
    assert positions(SOURCE, None, "9") == IntervalSet((MIN_POSITION, 9))
    assert positions(SOURCE, None, None) is None
    with pytest.raises(UsageError, match="not before"):
        positions(SOURCE, "9", "5")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 m"), (200, "3 m"), (7200, "2 h"), (400_000, "4 d"), (None, "")],
)
def test_an_age_is_said_in_its_largest_unit(seconds: int | None, words: str) -> None:
    assert show.age(seconds) == words


def test_a_query_that_asks_for_its_partition_key_is_not_widened(tmp_path: Any) -> None:
    keyed = HOURLY.replace("count(*) as orders", "count(*) as orders, '{{ bounds.key }}' as partition_key")
    for text, widens in ((HOURLY, True), (keyed, False)):
        project = read(tmp_path, SHOP | {"models/transformations/hourly.sql": text})
        assert project.graph.interval_model("shop.hourly").widens is widens
