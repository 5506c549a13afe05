"""One late row a second for a minute, while a scheduler and a worker stay up."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment import Deployment
from rounds import rounds

HOUR = 3600
HOURLY = "select n - n % 3600 as n, count(*) as rows, sum(value) as value from {{ ref('raw.events') }} group by 1"
LATE = 2 * HOUR + 120
SOURCE = "axis: number\ncompleteness: inclusive\nscan: {incremental: 1s, full: 1h}\n"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    """Ten hours, and what hangs on them."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("events", SOURCE)
    made.model("hourly", HOURLY, "interval: 3600")
    made.model("double", "select n, value * 2 as value from {{ ref('t.hourly') }}", "interval: 7200")
    made.land("events", range(0, 10 * HOUR, 60))
    # the row that says that the tenth hour is complete
    made.land("events", [10 * HOUR - 1])
    return made


def settings(trial: Deployment, text: str) -> None:
    path = trial.root / "penstock.yml"
    path.write_text(path.read_text() + text)


def trickled(trial: Deployment, seconds: int = 60) -> dict[str, list[tuple[int, int]]]:
    """What was repaired, by model, after some time of it and the time that the last repair waits."""
    with rounds(trial) as up:
        up.round()
        assert not up.workspace.state.views.whole().events
        for second in range(seconds):
            trial.land("events", [LATE + second])
            up.wait(1)
        for _ in range(5):
            up.wait(7)
        assert all(one.outcome == "succeeded" for one in up.done)
    repairs: dict[str, list[tuple[int, int]]] = {}
    for task in trial.tasks():
        if task.lane == "repair":
            chunks = [(chunk.start, chunk.end) for chunk in task.order.chunks]
            repairs.setdefault(task.model, []).extend(chunks)
    return repairs


def computed_again(rows: int = 60) -> list[tuple[object, ...]]:
    positions = [*range(0, 10 * HOUR, 60), 10 * HOUR - 1, *range(LATE, LATE + rows)]
    hours = {hour: [n for n in positions if n // HOUR == hour] for hour in range(10)}
    return [(hour * HOUR, len(found), sum(found) * 7) for hour, found in hours.items()]


def test_a_minute_of_late_rows_is_at_most_four_repairs_of_their_hour(trial: Deployment) -> None:
    repairs = trickled(trial)
    assert 1 <= len(repairs["t.hourly"]) <= 4
    assert set(repairs["t.hourly"]) == {(2 * HOUR, 3 * HOUR)}
    assert set(repairs["t.double"]) == {(2 * HOUR, 4 * HOUR)}
    assert len(repairs["t.double"]) <= len(repairs["t.hourly"])
    assert trial.rows("hourly") == computed_again()
    assert [row[1] for row in trial.rows("double")] == [row[2] * 2 for row in computed_again()]  # type: ignore[operator]
    assert not trial.stale("hourly")
    assert not trial.stale("double")


def test_control_repairs_that_do_not_wait_are_one_for_every_row(trial: Deployment) -> None:
    settings(trial, "scheduler: {repair_delay: 0}\n")
    assert len(trickled(trial, 12)["t.hourly"]) == 12
    assert trial.rows("hourly") == computed_again(12)
