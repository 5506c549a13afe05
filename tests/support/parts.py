"""What does each part of the tests cost? Long files begin first, and a table at the end says what was spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

LIMITS = {"unit": 90, "integration": 1900, "spark": 1700, "crash": 250, "acceptance": 750}
"""Seconds that each part may cost, added up over the processes that share the files."""
LONGEST = (
    "acceptance/test_together.py",
    "acceptance/test_documents.py",
    "spark/test_foreign_tables.py",
    "acceptance/test_demo.py",
    "spark/test_residents_spark.py",
    "crash/test_chaos.py",
    "acceptance/test_stories.py",
    "spark/test_our_tables.py",
    "spark/test_stage.py",
    "spark/test_changes_spark.py",
    "crash/test_matrix.py",
    "spark/",
    "integration/test_benchmarks.py",
    "integration/test_runtime_audit.py",
    "integration/test_state_meetings.py",
    "integration/test_state_interleavings.py",
    "integration/test_runtime_",
    "integration/test_source_watcher.py",
    "integration/test_simulation.py",
    "acceptance/",
    "crash/",
    "integration/",
    "unit/",
)
"""Longest first: whoever shares the files then has short ones left for the end, and no process waits for another."""


def longest_first(items: list[pytest.Item]) -> None:
    """Put the files in that order; the tests of a file stay as they are."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    file = nodeid.partition("tests/")[2]
    return next((rank for rank, name in enumerate(LONGEST) if file.startswith(name)), len(LONGEST))


def table(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A line for each part: its tests, its seconds with their fixtures, its share of all, and its limit."""
    tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for report in reports:
        part = report.nodeid.split("/")[1]
        seconds[part] += report.duration
        tests[part] += report.when == "call"
    yield f"{'part':12} {'tests':>6} {'seconds':>8} {'share':>6} {'limit':>6}"
    for part, limit in LIMITS.items():
        if part in seconds:
            share, over = seconds[part] / seconds.total(), "  over its limit" if seconds[part] > limit else ""
            yield f"{part:12} {tests[part]:6} {seconds[part]:8.0f} {share:6.0%} {limit:6}{over}"
