"""A format whose log tells its snapshots has a reader of that log; any other is one that Spark knows."""

from __future__ import annotations

from inspect import signature

import pytest

from penstock.engine.observe.source_log import SourceLog, source_log
from penstock.values.models import source_format as formats
from penstock.values.models.source_format import DELTA, SourceFormat, source_format

QUESTIONS = [name for name in vars(SourceLog) if not name.startswith("_")]


@pytest.mark.parametrize("known", formats._WITH_LOG.values(), ids=lambda known: known.name)
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_log_answers_every_question(known: SourceFormat, question: str) -> None:
    asked = list(signature(getattr(SourceLog, question)).parameters.values())[1:]
    answered = list(signature(getattr(source_log(known), question)).parameters.values())
    assert [(each.name, each.kind, each.default) for each in answered] == [
        (each.name, each.kind, each.default) for each in asked
    ]


def test_a_format_is_known_in_any_spelling() -> None:
    assert source_format("Delta") is DELTA
    assert source_format("Parquet") == SourceFormat("parquet")
    assert DELTA.has_log
    assert not source_format("parquet").has_log
