"""Which texts are a condition about the rows of a table?"""

from __future__ import annotations

import pytest

from penstock.answers.query import _select
from penstock.errors import UsageError
from penstock.runtime.redo.matching import condition


@pytest.mark.parametrize(
    "text",
    [
        "country = 'NO'",
        "amount is null",
        "name = 'O''Brien; or so'",
        'name = "it\'s"',
        "not ok",
        "true",
        "`odd name` <=> null",
        "hour >= timestamp'2026-01-01' and country in ('NO', 'SE')",
        "amount between 1 and 2 or name like '%x%'",
        "x = 1 -- said so by mail",
        "array_contains(tags, 'x')",
    ],
)
def test_a_condition_is_kept_as_it_was_typed(text: str) -> None:
    assert condition(f"  {text} ") == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-- nothing",
        "1",
        "*",
        "(a, b)",
        "select 1",
        "drop table x",
        "x = 1; drop table y",
        "x in (select y from z)",
        "exists (select 1)",
        "count(*) > 1",
        "sum(x) over () > 1",
        "x = 1) or (x = 2",
        "x = 1 union select 2",
        "x =",
        "x = 'open",
        "two words",
        "x = ?",
        "(" * 3000 + "x = 1" + ")" * 3000,
        "not " * 5000 + "x",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--where") as caught:
        condition(text)
    assert "country = 'NO'" in str(caught.value.hint)


def test_what_the_parser_cannot_read_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match="exactly one SELECT"):
        _select("execute immediate 'select 1'")
    assert caplog.records == []
