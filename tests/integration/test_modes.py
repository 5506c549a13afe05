"""The two ways to work with changing data: partition by partition, and from a cursor on."""

from __future__ import annotations

from pathlib import Path

import pytest
from arrow_engine import ArrowEngine
from deltalake import DeltaTable
from deployment import Deployment
from faults import Fault, Killed, raising
from rounds import rounds

from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import Job, Step
from penstock.planner.policy import triggers
from penstock.values.intervals import NOTHING, IntervalSet, ranges

SOURCE = "axis: number\ncompleteness: inclusive\nscan: {incremental: 1s, full: 1h}\n"
KEYED = "select n, '{{ bounds.key }}' as key, value from {{ ref('raw.events') }}"
COPY = "select n, value from {{ ref('raw.events') }}"
CURSOR = "interval: {max: 100, min: 0}"
DAILY = 'interval: 10\nschedules: {forwardfill: "@every 1d", backfill: "@every 1d"}'


class Watched(ArrowEngine):
    """Remembers what each job was shown of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[IntervalSet] = []

    def stage(self, job: Job, step: Step) -> Staged:
        seen = NOTHING
        for rendering in job.renderings:
            for read in rendering.inputs:
                seen |= read.window or NOTHING
        self.shown.append(seen)
        return super().stage(job, step)


@pytest.fixture
def engine() -> Watched:
    return Watched()


@pytest.fixture
def trial(tmp_path: Path, dsn: str, engine: Watched) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.engine = engine
    made.source("events", SOURCE)
    made.land("events", range(25))
    return made


def cursor(trial: Deployment, name: str = "tail") -> object:
    return trial.status(f"t.{name}")["cursor"]


# partition by partition


def test_s2_14_a_partition_consumer_gets_exactly_its_key_and_replaces_it(trial: Deployment, engine: Watched) -> None:
    trial.model("part", KEYED)
    trial.run()
    assert trial.rows("part") == [(f"{n // 10 * 10}_{n // 10 * 10 + 10}", n, n * 7) for n in range(20)]
    engine.shown.clear()
    source = DeltaTable(str(trial.landing("events")))
    source.update({"value": "0"}, predicate="n = 13")
    source.delete("n = 17")
    assert trial.run().intervals == 1
    assert engine.shown == [ranges((10, 20))]
    wanted = [(f"{n // 10 * 10}_{n // 10 * 10 + 10}", n, 0 if n == 13 else n * 7) for n in range(20) if n != 17]
    assert trial.rows("part") == wanted


def test_s2_13_a_partition_is_offered_to_its_consumer_only_after_it_was_committed(trial: Deployment) -> None:
    trial.model("parent", COPY)
    trial.model("child", "select n, value from {{ ref('t.parent') }}")
    seen: list[tuple[IntervalSet, list[tuple[int, int]]]] = []
    look = Fault("delta committed", lambda: seen.append((trial.covered("parent"), trial.chunks("child"))))
    trial.run("t.parent", step=look)
    assert seen == [(NOTHING, [])]  # in the log, not accepted yet: nobody is told
    trial.run()
    assert trial.chunks("child") == [(0, 10), (10, 20)]


def test_s2_36_the_sweep_finds_a_partition_whose_event_was_lost(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child runs once a day by its schedule, and does not hear of its parent's commits."""
    monkeypatch.setattr(triggers, "_offers", lambda _: None)
    trial.model("parent", COPY)
    trial.model("child", "select n, value from {{ ref('t.parent') }}", DAILY)
    with rounds(trial) as up:
        up.round()
        up.workspace.state.database.connection.execute(b"delete from event")
        up.wait(5)
        assert trial.covered("parent") == ranges((0, 20))
        assert not trial.covered("child")
        up.wait(60)
        assert trial.covered("child") == ranges((0, 20))
    assert trial.rows("child") == [(n, n * 7) for n in range(20)]


def test_s2_36_control_without_the_sweep_nobody_finds_it(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "_offers", lambda _: None)
    trial.write("penstock.yml", (trial.root / "penstock.yml").read_text() + "scheduler: {sweep: 10 days}\n")
    trial.model("parent", COPY)
    trial.model("child", "select n, value from {{ ref('t.parent') }}", DAILY)
    with rounds(trial) as up:
        up.round()
        up.wait(65)
    assert trial.covered("parent") == ranges((0, 20))
    assert not trial.covered("child")


# from a cursor on


def test_a_cursor_consumer_reads_only_what_is_new_and_says_where_it_is(trial: Deployment, engine: Watched) -> None:
    trial.model("tail", COPY, CURSOR)
    assert trial.run().tasks == 1
    assert cursor(trial) == 25
    trial.land("events", range(25, 31))
    engine.shown.clear()
    assert trial.run().tasks == 1
    assert engine.shown == [ranges((25, 31))]
    assert cursor(trial) == 31
    assert trial.rows("tail") == [(n, n * 7) for n in range(31)]


def test_s2_16_a_repair_reads_its_range_and_leaves_the_cursor_alone(trial: Deployment, engine: Watched) -> None:
    trial.model("tail", COPY, CURSOR)
    trial.run()
    trial.land("events", [5], factor=100)
    engine.shown.clear()
    during: list[object] = []
    assert trial.run(step=Fault("staged", lambda: during.append(cursor(trial)))).tasks == 1
    assert [task.lane for task in trial.tasks("tail")] == ["forward", "repair"]
    assert engine.shown == [ranges((5, 6))]
    assert [*during, cursor(trial)] == [25, 25]
    assert (5, 500) in trial.rows("tail")


def test_s2_15_a_cursor_moves_when_its_rows_are_accepted_and_not_when_they_are_written(trial: Deployment) -> None:
    trial.model("tail", COPY, CURSOR)
    trial.run()
    trial.land("events", range(25, 31))
    with pytest.raises(Killed):
        trial.run(step=Fault("delta committed", raising(Killed())))
    assert cursor(trial) == 25
    trial.run()
    assert cursor(trial) == 31
    assert trial.rows("tail") == [(n, n * 7) for n in range(31)]
    assert trial.most_commits("tail") == 1


def test_s2_35_a_cursor_consumer_that_hears_nothing_catches_up_with_the_next_round(trial: Deployment) -> None:
    trial.model("tail", COPY, CURSOR)
    with rounds(trial) as up:
        up.round()
        for end in (31, 37):
            trial.land("events", range(end - 6, end))
            up.workspace.state.database.connection.execute(b"delete from event")
        up.wait(61)
    assert cursor(trial) == 37
    assert trial.rows("tail") == [(n, n * 7) for n in range(37)]


def test_s2_6_both_ways_work_in_one_graph(trial: Deployment) -> None:
    trial.model("tail", COPY, CURSOR)
    trial.model("part", KEYED.replace("raw.events", "t.tail"))
    trial.run()
    assert (cursor(trial), trial.covered("part")) == (25, ranges((0, 20)))
    trial.land("events", [5, 25, 26, 27, 28, 29], factor=100)
    trial.run()
    assert (cursor(trial), trial.covered("part")) == (30, ranges((0, 30)))
    assert ("0_10", 5, 500) in trial.rows("part")
    assert trial.chunks("part") == [(0, 10), (0, 10), (10, 20), (20, 30)]
