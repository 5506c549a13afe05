"""What does a rerun compute again, and how far do its changes go?"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deployment import Deployment
from faults import Fault, Killed, raising

from penstock.errors import UsageError
from penstock.values.intervals import ranges

COPY = "select n, value from {{ ref('raw.numbers') }}"
TIMES = "select n, value * times as value from {{ ref('raw.numbers') }} cross join {{ ref('raw.factor') }}"
"""Over a lookup, whose changes reopen nothing: what was computed again shows in the rows."""


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    """copy -> child -> rest (the same whatever multiple of 7 the value is) -> last."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("copy", COPY)
    made.land("numbers", range(60))
    return made


@pytest.fixture
def chain(trial: Deployment) -> Deployment:
    trial.model("child", "select n, value + 1 as value from {{ ref('t.copy') }}", "interval: 20")
    trial.model("rest", "select n, value % 7 as value from {{ ref('t.child') }}")
    trial.model("last", "select n, value from {{ ref('t.rest') }}")
    trial.run()
    return trial


def multiplied(trial: Deployment, times: int = 2) -> None:
    """All rows of a model over the lookup would be others now; nobody tells."""
    place = trial.landing("factor")
    trial.write("models/external/factor.yml", f'location: "{place}"\n')
    write_deltalake(str(place), pa.table({"times": pa.array([times], pa.int64())}), mode="overwrite")


def corrected(trial: Deployment, where: str, factor: int = 14) -> None:
    """Somebody changes rows of the source."""
    DeltaTable(str(trial.landing("numbers"))).update({"value": f"n * {factor}"}, predicate=where)


def values(start: int, end: int, factor: int = 14, upto: int = 60) -> list[tuple[object, ...]]:
    return [(n, n * (factor if start <= n < end else 7)) for n in range(upto)]


def again(trial: Deployment, name: str, before: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The chunks that were computed since."""
    now = trial.chunks(name)
    for chunk in before:
        now.remove(chunk)
    return now


def test_changed_rows_go_on_to_child_and_grandchild_and_stop_where_rows_are_equal(chain: Deployment) -> None:
    before = {name: chain.chunks(name) for name in ("copy", "child", "rest", "last")}
    snapshots = {name: chain.current(name).accepted_snapshot for name in ("rest", "last")}
    corrected(chain, "n >= 10 and n < 20")
    summary = chain.rerun("copy")
    assert summary.failed == 0
    wanted = values(10, 20)
    assert chain.rows("copy") == wanted
    assert chain.rows("child") == [(n, value + 1) for n, value in wanted]  # type: ignore[operator]
    assert chain.rows("rest") == chain.rows("last") == [(n, 1) for n in range(60)]
    assert again(chain, "copy", before["copy"]) == [(start, start + 10) for start in range(0, 60, 10)]
    assert again(chain, "child", before["child"]) == [(0, 20)]
    assert again(chain, "rest", before["rest"]) == [(10, 20)]
    assert again(chain, "last", before["last"]) == []
    assert {name: chain.current(name).accepted_snapshot for name in snapshots} == snapshots
    assert not any(chain.stale(name) for name in before)


def test_a_rerun_that_changes_nothing_writes_nothing_and_wakes_nobody(chain: Deployment) -> None:
    before = {name: chain.chunks(name) for name in ("copy", "child")}
    snapshot = chain.current("copy").accepted_snapshot
    assert chain.rerun("copy", 0, 30).intervals == 3
    assert chain.current("copy").accepted_snapshot == snapshot
    assert again(chain, "child", before["child"]) == []


def test_a_rerun_of_a_child_leaves_its_parent_alone(chain: Deployment) -> None:
    before = chain.chunks("copy")
    assert chain.rerun("child", 0, 20).intervals == 1
    assert again(chain, "copy", before) == []


def test_a_rerun_whose_result_is_empty_removes_the_old_rows(chain: Deployment) -> None:
    DeltaTable(str(chain.landing("numbers"))).delete("n >= 20 and n < 30")
    chain.rerun("copy", 20, 30)
    wanted = [n for n in range(60) if not 20 <= n < 30]
    assert all([row[0] for row in chain.rows(name)] == wanted for name in ("copy", "child", "rest", "last"))
    assert chain.covered("last") == ranges((0, 60))


@pytest.fixture
def looked_up(trial: Deployment) -> Deployment:
    """A forward-only model: nothing but a rerun ever computes its chunks again."""
    multiplied(trial, 1)
    trial.model("copy", TIMES, "interval: 10\nschedules: {backfill: off}\nfill: {direction: tail}")
    trial.run()
    return trial


def test_s0_56_b_20_a_rerun_of_a_forward_only_model_recomputes_every_chunk_that_its_range_meets(
    looked_up: Deployment,
) -> None:
    stories: list[tuple[int | None, int | None, list[tuple[int, int]]]] = [
        (15, 35, [(10, 20), (20, 30), (30, 40)]),  # straddles two
        (12, 18, [(10, 20)]),  # lies within one
        (20, 30, [(20, 30)]),  # is one
        (25, 26, [(20, 30)]),
        (None, 11, [(0, 10), (10, 20)]),
        (49, None, [(40, 50), (50, 60)]),
        (55, 90, [(50, 60)]),  # only what is covered
    ]
    wanted = {n: 7 * n for n in range(60)}
    for times, (start, end, computed) in enumerate(stories, 2):
        before = looked_up.chunks("copy")
        multiplied(looked_up, times)
        assert looked_up.rerun("copy", start, end).failed == 0
        assert again(looked_up, "copy", before) == computed
        wanted |= {n: 7 * n * times for n in range(computed[0][0], computed[-1][1])}
        assert looked_up.rows("copy") == sorted(wanted.items())
        assert looked_up.covered("copy") == ranges((0, 60))
        assert not looked_up.stale("copy")


def test_b_20_a_range_that_begins_inside_a_chunk_reopens_all_of_the_range(trial: Deployment) -> None:
    """Chunks of uneven length, wherever the rows ended when they came."""
    multiplied(trial, 1)
    trial.model("copy", TIMES, "interval: {max: 60, min: 20}\nfill: {direction: tail}")
    trial.land("numbers", range(60, 80))
    trial.run()
    trial.land("numbers", range(80, 200))
    trial.run()
    before = trial.chunks("copy")
    assert before == [(0, 60), (60, 80), (80, 140), (140, 200)]
    multiplied(trial)
    trial.rerun("copy", 100, 200)
    assert again(trial, "copy", before) == [(100, 140), (140, 200)]
    assert trial.rows("copy") == values(100, 200, upto=200)
    assert trial.covered("copy") == ranges((0, 200))


def test_b_20_chunks_of_an_older_size_are_recomputed_too(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: {max: 60, min: 20, align: 20}")
    trial.run()
    trial.model("copy", COPY, "interval: {max: 15, min: 5, align: 5}")
    trial.run()
    corrected(trial, "n >= 0")
    trial.rerun("copy", 33, 34)
    rows = trial.rows("copy")
    assert (33, 33 * 14) in rows
    assert len(rows) == 60
    assert trial.covered("copy") == ranges((0, 60))
    assert not trial.stale("copy")


def test_a_rerun_of_a_model_that_holds_less_is_a_clear_error(trial: Deployment) -> None:
    trial.run()
    with pytest.raises(UsageError, match=r"t\.copy holds nothing in that range; it holds 0 \.\. 60"):
        trial.rerun("copy", 100, 200)
    assert not trial.stale("copy")


def test_a_rerun_before_the_first_run_is_a_clear_error(trial: Deployment) -> None:
    with pytest.raises(UsageError, match=r"t\.copy holds nothing in that range; it holds nothing"):
        trial.rerun("copy")


def test_a_rerun_with_a_query_that_was_not_applied_is_a_clear_error(trial: Deployment) -> None:
    trial.run()
    trial.model("copy", COPY.replace("value", "2 * value as value"))
    with pytest.raises(UsageError, match="changed since it was applied"):
        trial.rerun("copy")
    assert not trial.stale("copy")


def test_a_rerun_asked_for_twice_is_done_once_more(looked_up: Deployment) -> None:
    before = looked_up.chunks("copy")
    multiplied(looked_up)
    for _ in range(2):
        looked_up.rerun("copy", 10, 20)
    assert again(looked_up, "copy", before) == [(10, 20), (10, 20)]
    assert looked_up.rows("copy") == values(10, 20)


def test_a_rerun_that_was_only_recorded_is_done_by_the_next_run(looked_up: Deployment) -> None:
    multiplied(looked_up)
    with looked_up.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((10, 20)), "rerun", "test")
    assert looked_up.stale("copy") == ranges((10, 20))
    looked_up.run()
    assert looked_up.rows("copy") == values(10, 20)


@pytest.mark.parametrize("step", ["intended", "staged", "delta committed", "recorded", "published"])
def test_b_20_a_rerun_that_is_killed_is_finished_by_the_next_run(chain: Deployment, step: str) -> None:
    corrected(chain, "n >= 10 and n < 20")
    with chain.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((10, 20)), "rerun", "test")
    with pytest.raises(Killed):
        chain.run(step=Fault(step, raising(Killed())))
    assert chain.run().failed == 0
    assert chain.rows("copy") == values(10, 20)
    assert chain.rows("child") == [(n, value + 1) for n, value in values(10, 20)]  # type: ignore[operator]
    assert not any(chain.stale(name) for name in ("copy", "child", "rest", "last"))
    assert chain.most_commits("copy") == 1


def test_a_rerun_asked_for_while_the_same_chunk_is_computed_is_not_lost(trial: Deployment) -> None:
    """The attempt has fixed its inputs when the invalidation comes: what it publishes is stale, and done again."""
    trial.model("copy", COPY, "interval: 60")

    def invalidate() -> None:
        corrected(trial, "n >= 0")
        with trial.opened() as workspace:
            workspace.state.invalidations.invalidate("t.copy", ranges((0, 60)), "rerun", "test")

    trial.run(step=Fault("staged", invalidate))
    assert trial.chunks("copy") == [(0, 60), (0, 60)]
    assert not trial.stale("copy")
    trial.run()
    trial.rerun("copy")
    assert trial.rows("copy") == values(0, 60)


def test_a_dead_repair_keeps_the_old_rows_and_says_so(trial: Deployment) -> None:
    trial.model("share", "select n, 100 / (value + 1) as share from {{ ref('raw.numbers') }}")
    trial.run()
    before = trial.rows("share")
    DeltaTable(str(trial.landing("numbers"))).update({"value": "-1"}, predicate="n = 15")
    assert trial.rerun("share", 10, 30).failed == 1
    assert trial.rows("share") == before
    assert trial.stale("share") == ranges((10, 20))
    assert trial.status("t.share")["health"] == "failing"
