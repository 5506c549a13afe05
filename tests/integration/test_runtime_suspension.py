"""A model whose every interval fails alike, under a scheduler that stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment import Deployment, commit
from faults import Fault, raising
from fuzzing import FUZZ
from rounds import Rounds, rounds

from penstock.errors import EngineError
from penstock.runtime.plan import reconcile as settling
from penstock.values.intervals import ranges

SHARE = "select n, 100 / value as share from {{ ref('raw.numbers') }}"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    """Every row of the source is one that the query cannot take."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers", "axis: number\nscan: {incremental: 1s}\n")
    made.land("numbers", range(200), factor=0)
    made.model("share", SHARE, "interval: 10\nfill: {direction: tail}")
    return made


def begun(life: Rounds) -> int:
    [[count]] = life.workspace.state.database.connection.execute("select count(*) from attempt").fetchall()
    return int(count)


def test_a_suspended_model_costs_nothing_until_its_input_changes(trial: Deployment) -> None:
    with rounds(trial) as life:
        life.round()
        few = begun(life)
        assert few <= 8
        assert trial.status("t.share")["health"] == "suspended"
        for _ in range(30 if FUZZ else 10):
            life.wait(600 if FUZZ else 1800)
        assert begun(life) == few
        commit(trial.landing("numbers"), {"n": range(200), "value": [7] * 200}, mode="overwrite")
        life.wait(60)
    assert trial.covered("share") == ranges((0, 200))
    shown = trial.status("t.share")
    assert (shown["health"], shown["last_error"]) == ("ok", None)


def test_input_that_changes_and_stays_bad_is_tried_ever_less_often(trial: Deployment) -> None:
    with rounds(trial) as life:
        life.round()
        few = begun(life)
        changes = 120 if FUZZ else 60
        for more in range(changes):
            trial.land("numbers", [200 + more], factor=0)
            life.wait(3600 // changes)
        assert begun(life) <= few * 12  # an hour of changes: 30 + 60 + ... + 600 s of pauses
    assert trial.status("t.share")["health"] == "suspended"


@pytest.mark.parametrize("schedules", ["", '\nschedules: {forwardfill: "0 0 1 1 *", backfill: "0 0 1 1 *"}'])
def test_storage_that_comes_back_needs_no_person(trial: Deployment, schedules: str) -> None:
    """All chunks fail alike for half an hour; few attempts are made of it, and afterwards everything is done."""
    matter = f"interval: 10\nretries: 0{schedules}"
    trial.model("share", "select n, value as share from {{ ref('raw.numbers') }}", matter)
    away = Fault("staged", raising(EngineError("the store is away")), times=10_000)
    with rounds(trial, away) as life:
        life.wait(366 * 24 * 3600 if schedules else 0)
        assert trial.status("t.share")["health"] == "suspended"
        few = begun(life)
        assert few <= 6
        for _ in range(180):
            life.wait(10)
        assert few < begun(life) <= few * 8  # 30 + 60 + 120 + 240 + 480 + 600 s
        away.times = 0
        life.wait(600)
    assert trial.covered("share") == ranges((0, 200))
    shown = trial.status("t.share")
    assert (shown["health"], shown["last_error"]) == ("ok", None)


def test_control_a_fault_that_is_not_known_to_pass_stays(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "tries_again", lambda *_, moved, passing: moved)
    trial.model("share", "select n, value as share from {{ ref('raw.numbers') }}", "interval: 10\nretries: 0")
    away = Fault("staged", raising(EngineError("the store is away")), times=6)
    with rounds(trial, away) as life:
        life.round()
        few = begun(life)
        life.wait(3600)
        assert begun(life) == few
    assert trial.status("t.share")["health"] == "suspended"
