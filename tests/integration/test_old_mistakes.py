"""Mistakes that earlier systems made and that must not come back, each by its number."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment
from rounds import rounds

from penstock.runtime.work.attempt import work

COPY = "select n, value from {{ ref('raw.numbers') }}"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers", "axis: number\nscan: {incremental: 1s}\n")
    return made


def test_b_1_a_slow_worker_and_a_source_that_grows_give_no_overlapping_tasks(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: {max: 50, min: 0}")
    trial.land("numbers", range(7))
    with rounds(trial) as life:
        life.plan()
        held = life.workspace.state.queue.claim("slow")
        assert held is not None
        for tick in range(1, 11):
            trial.land("numbers", range(tick * 7, tick * 7 + 7))
            trial.move_clock(tick * 11)  # new rows are planned every ten seconds at most
            assert life.workspace.state.workers.heartbeat([held]) == ()
            life.plan()
            active = sorted(
                (chunk.start, chunk.end)
                for task in trial.tasks("copy")
                if task.state in ("queued", "running", "retrying")
                for chunk in task.order.chunks
            )
            assert all(one[1] <= other[0] for one, other in pairwise(active)), active
        assert work(life.context, held).outcome == "succeeded"
        life.work()
        trial.move_clock(200)
        life.round()
    assert trial.rows("copy") == [(n, n * 7) for n in range(77)]


def test_b_21_a_reader_sees_all_rows_at_every_moment_of_a_rerun(trial: Deployment) -> None:
    trial.model("copy", "select n, value, 'a; b -- ; c' as note from {{ ref('raw.numbers') }} -- ; all of it")
    trial.land("numbers", range(40))
    trial.run()
    place = trial.place("copy")
    seen: list[tuple[str, tuple[int, int]]] = []

    def look(label: str) -> None:
        rows = DeltaTable(place).to_pyarrow_table()
        seen.append((label, (rows.num_rows, len(set(rows["n"].to_pylist())))))

    DeltaTable(str(trial.landing("numbers"))).update({"value": "n * 9"})
    assert trial.run(step=look).intervals == 4
    assert {counts for _, counts in seen} == {(40, 40)}
    assert {"intended", "staged", "delta committed", "published"} <= {label for label, _ in seen}
    assert trial.rows("copy") == [(n, "a; b -- ; c", n * 9) for n in range(40)]


def test_b_22_chunks_of_any_size_add_up_and_a_roll_up_of_a_roll_up_is_the_direct_one(trial: Deployment) -> None:
    total = "select {{ bounds.start }} as n, sum(value) as value from {{ ref('%s') }} having count(*) > 0"
    for size in (7, 13, 10):
        trial.model(f"by_{size}", total % "raw.numbers", f"interval: {size}")
    trial.model(
        "tens",
        "select n - n % 10 as n, sum(value) as value from {{ ref('raw.numbers') }} group by 1",
        "interval: {max: 20, min: 1, align: 10}",
    )
    trial.model("forties", total % "t.tens", "interval: 40")
    trial.model("direct", total % "raw.numbers", "interval: 40")
    for start, end in ((0, 33), (33, 94), (94, 182), (182, 205)):  # the open bucket is met again and again
        trial.land("numbers", range(start, end))
        trial.run()
    for size in (7, 13, 10):
        whole = 205 // size * size
        assert sum(int(str(value)) for _, value in trial.rows(f"by_{size}")) == sum(n * 7 for n in range(whole))
    assert trial.rows("tens") == [(n, sum(m * 7 for m in range(n, min(n + 10, 205)))) for n in range(0, 205, 10)]
    assert trial.rows("forties") == trial.rows("direct")
    assert len(trial.rows("direct")) == 5
