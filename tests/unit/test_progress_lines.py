"""What does a person read while `run` works?"""

from __future__ import annotations

import pytest

from penstock.cli.bars import Lines
from penstock.cli.inspect import _holds
from penstock.runtime.process.progress import Finished
from penstock.values.intervals import Interval
from penstock.values.tasks import WHOLE, Lane, Order


def order(lane: Lane = "refresh") -> Order:
    chunks = (WHOLE,) if lane == "refresh" else (Interval(0, 10), Interval(10, 20))
    return Order("shop.x", lane, chunks, ("raw.orders",), "raw.orders changed")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            Finished(order(), "succeeded", 0.61, 100, True, strategy="affected_keys", keys=2),
            "shop.x: refreshed (affected_keys, 2 keys), 100 rows, 0.6 s",
        ),
        (
            Finished(order(), "succeeded", 0.6, 100, True, strategy="affected_keys", keys=1),
            "shop.x: refreshed (affected_keys, 1 key), 100 rows, 0.6 s",
        ),
        (Finished(order(), "succeeded", 3.0, 1, True, strategy="full"), "shop.x: refreshed (full), 1 row, 3.0 s"),
        (
            Finished(order(), "succeeded", 0.0, 100, False, strategy="no_data"),
            "shop.x: refreshed (no_data), nothing changed, 0.0 s",
        ),
        (Finished(order(), "dead", 0.2, error="no such column"), "shop.x: refresh dead, 0.2 s\n  no such column"),
        (
            Finished(order("forward"), "succeeded", 0.4, 7, True),
            "shop.x: 2 intervals (forward) succeeded, 7 rows, 0.4 s",
        ),
    ],
)
def test_what_ended_is_said_in_one_line(result: Finished, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Lines().finished(result)
    assert capsys.readouterr().err == said + "\n"


@pytest.mark.parametrize(
    ("lag", "target", "said"),
    [(12, 300, "lag 12 s of 5 m"), (200, 60, "lag 3 m of 1 m"), (5, None, "lag 5 s"), (5, 0, "lag 5 s")],
)
def test_a_dynamic_table_shows_how_old_it_is_and_may_be(lag: int, target: int | None, said: str) -> None:
    row = {"type": "dynamic", "data_timestamp": "2026-01-01", "lag_seconds": lag, "target_lag_seconds": target}
    assert _holds(row) == said
    assert _holds({**row, "data_timestamp": None}) == "nothing"
