"""Refreshes of random queries, judged by DuckDB; every rule that is broken on purpose is found out.

A case that fails is made smaller and written to `tests/integration/dynamic_cases`, where it is replayed from then on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from dynamic_fuzz import Wrong, kept_on_file, replayed, run, run_appending, run_pruned, shrunk
from dynamic_mutants import MUTANTS, broken
from fuzzing import FUZZ

CASES = Path(__file__).parent / "dynamic_cases"
SEEDS = range(1, 101 if FUZZ else 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_refresh_gives_what_the_whole_query_gives(seed: int) -> None:
    try:
        report = run(seed, queries=75, moves=8)
    except Wrong as wrong:
        sql, move = shrunk(wrong.sql, wrong.move)
        pytest.fail(f"{wrong}\nreplay: {kept_on_file(CASES, sql, move, wrong.why)}")
    assert report.cases > 400
    assert report.moved > 50
    assert sum(report.whole.values()) < 0.1 * report.queries, report.whole


@pytest.mark.parametrize("seed", SEEDS)
def test_appended_rows_are_those_that_the_whole_query_gains(seed: int) -> None:
    assert run_appending(seed, queries=25) == 100


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_a_pushed_key_leaves_out_are_not_missed(seed: int) -> None:
    assert run_pruned(seed, queries=75) > 20


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_found_out(name: str) -> None:
    with broken(name):
        if any(replayed(case) for case in CASES.glob("*.json")):
            return
        for seed in range(1, 31):
            try:
                run(seed, queries=25, moves=4, depths=(0, 0, 1))
            except Wrong as wrong:
                if "Error" not in wrong.why:  # rows are wrong, and not just the SQL
                    return
    pytest.fail("it was not")


@pytest.mark.parametrize("case", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_that_failed_once_does_not_fail_again(case: Path) -> None:
    assert replayed(case) is None
