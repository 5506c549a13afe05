"""How is it said why a range was computed again?"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock.answers.pairs import listed
from penstock.answers.reopened import row, words
from penstock.values.intervals import NOTHING, ranges
from penstock.values.records import Cause, ReopeningRecord

THEN = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = ReopeningRecord(
    1, "raw.orders", "source", "raw.orders changed", "penstock", 42, 20, ranges((0, 10)), NOTHING, THEN, THEN, None
)


@pytest.mark.parametrize(
    ("cause", "changes", "said"),
    [
        ("source", {}, "commit 42 of raw.orders changed 20 rows of this interval"),
        ("source", {"rows": 1}, "commit 42 of raw.orders changed 1 row of this interval"),
        ("source", {"rows": None}, "commit 42 of raw.orders changed rows of this interval"),
        ("source", {"rows": None, "snapshot": None}, "raw.orders changed rows of this interval"),
        (
            "parent",
            {"model": "shop.a", "snapshot": 7, "rows": None},
            "commit 7 of shop.a changed rows of this interval",
        ),
        ("rerun", {"actor": "alice"}, "rerun by alice"),
        ("rerun", {"actor": "alice", "row_filter": "country = 'NO'"}, "rerun by alice where country = 'NO'"),
        ("manual", {"actor": "bob", "reason": "reorg"}, "raw.orders invalidated by bob: reorg"),
        ("manual", {"actor": "b", "reason": "x", "row_filter": "n = 1"}, "raw.orders invalidated by b where n = 1: x"),
        ("audit", {"reason": "DELETE by another program changed it"}, "DELETE by another program changed it"),
    ],
)
def test_every_cause_has_its_words(cause: Cause, changes: dict[str, object], said: str) -> None:
    assert words(replace(LATE, cause=cause, **changes)) == said  # type: ignore[arg-type]


def test_a_row_says_when_and_whether_it_is_repaired() -> None:
    done = row(LATE)
    json.dumps(done, default=listed)
    assert (done["state"], done["repaired_at"], done["open"]) == ("repaired", "2026-01-01T12:00:00+00:00", [])
    waiting = row(replace(LATE, open=ranges((5, 10)), closed_at=None))
    assert (waiting["state"], waiting["repaired_at"], waiting["open"]) == ("open", None, [[5, 10]])
    assert waiting["at"] == "2026-01-01T12:00:00+00:00"
