"""Rows that are only ever added: kept or retracted when their source rows change, and what consumers do then."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment, commit
from faults import Fault, Killed, raising

from penstock.answers.verify import ModelVerification, verify

KEYED = "select n, value from {{ ref('raw.numbers') }}"
APPEND = "interval: 20\nupdate_strategy: append\nunique_key: [value, n]\n"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    """kept and retracted, each with a child of shorter intervals."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    for name, policy in (("kept", "keep"), ("retracted", "retract")):
        made.model(name, KEYED, f"{APPEND}on_retract: {policy}")
        made.model(f"{name}_child", f"select n, value from {{{{ ref('t.{name}') }}}}", "interval: 5")
    made.land("numbers", range(40))
    made.run()
    return made


def verifications(trial: Deployment) -> list[ModelVerification]:
    with trial.opened() as workspace:
        return verify(workspace, workspace.interval_models(()), None, None).models


def corrected(trial: Deployment) -> None:
    DeltaTable(str(trial.landing("numbers"))).update({"value": "-value"}, predicate="n = 13")


def test_b46a_keyed_rows_of_rows_that_are_gone_stay_or_go_as_the_model_says(trial: Deployment) -> None:
    before = {name: trial.chunks(name) for name in ("kept_child", "retracted_child")}
    corrected(trial)
    for name in ("kept", "retracted"):
        assert trial.rerun(name).failed == 0
    keyed = [(n, n * 7) for n in range(40)]
    assert trial.rows("kept") == trial.rows("kept_child") == sorted([*keyed, (13, -91)])
    wanted = sorted([*(row for row in keyed if row[0] != 13), (13, -91)])
    assert trial.rows("retracted") == trial.rows("retracted_child") == wanted
    for name, chunks in before.items():
        assert trial.chunks(name) == sorted([*chunks, (10, 15)]), "only the child that has a changed row is woken"
    snapshots = [trial.current(name).accepted_snapshot for name in ("kept", "retracted")]
    for name in ("kept", "retracted"):
        trial.rerun(name)
    assert [trial.current(name).accepted_snapshot for name in ("kept", "retracted")] == snapshots
    assert [verification.differences for verification in verifications(trial)] == [0, 0, 0, 0]


def test_verify_finds_keyed_rows_that_are_missing_or_stored_twice(trial: Deployment) -> None:
    DeltaTable(trial.place("kept")).delete("n = 7")
    commit(trial.place("retracted"), {"n": [8], "value": [56]})
    with trial.opened() as workspace:
        for name in ("kept", "retracted"):
            head = DeltaTable(trial.place(name)).version()
            current = workspace.state.views.whole().current[f"t.{name}"]
            assert current.accepted_snapshot is not None
            workspace.state.generations.accept_snapshot(current.no, current.accepted_snapshot, head)
    found = {verification.name: verification for verification in verifications(trial)}
    assert (found["t.kept"].missing, found["t.kept"].unexpected, len(found["t.kept"].wrong)) == (1, 0, 1)
    assert (found["t.retracted"].missing, found["t.retracted"].unexpected) == (0, 1)


def test_an_attempt_that_dies_after_its_commit_adds_nothing_twice(trial: Deployment) -> None:
    trial.land("numbers", range(40, 60))
    with pytest.raises(Killed):
        trial.run("t.kept", step=Fault("delta committed", raising(Killed())))
    trial.execute("update task set lease_expires_at = clock() - interval '1 hour' where state = 'running'")
    trial.run()
    assert trial.rows("kept") == [(n, n * 7) for n in range(60)]
    assert trial.most_commits("kept") == 1
