"""A model whose every interval fails alike, under a scheduler that stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment import Deployment, commit
from fuzzing import FUZZ
from rounds import Rounds, rounds

from penstock.intervals import ranges

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
