"""Every check that can be written has a query for the rows that break it."""

from __future__ import annotations

import pytest

from penstock.engine.stage.checks import _violations
from penstock.errors import QueryError
from penstock.project.keys.keys import CHECK_SHAPES
from penstock.values.models import Check

COUNTED = "row_count"
"""Of this the rows are counted anyway."""
ARGUMENT = {"columns": ("a",), "values": (1,), "to": "t", "field": "f", "sql": "a > 0"}
"""What any of the checks may be given; a check with a key of its own adds it here."""


@pytest.mark.parametrize("kind", sorted(CHECK_SHAPES.keys() - {COUNTED}))
def test_every_check_that_can_be_written_counts_what_breaks_it(kind: str) -> None:
    assert _violations(Check(kind, ARGUMENT), 0).startswith("count")


def test_a_check_without_a_query_is_an_error() -> None:
    with pytest.raises(QueryError, match="there is no check odd"):
        _violations(Check("odd", {}), 0)
