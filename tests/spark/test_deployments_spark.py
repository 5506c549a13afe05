"""What whole deployments do with Spark that they are also tested for without it."""

from __future__ import annotations

import pytest
from deployment import Deployment

from penstock.errors import UsageError
from penstock.runtime.redo.invalidate import Words, report
from penstock.runtime.redo.rerun import request
from penstock.values.intervals import ranges

SET = "java_method('java.lang.System', 'setProperty', 'penstock.attacked', 'yes') is null"
GET = "select java_method('java.lang.System', 'getProperty', 'penstock.attacked', 'no') as found"
ATTACKS = (SET, SET.replace("java_method", "reflect"), f"n in (1, 2) or {SET}", f"case when {SET} then true end")


@pytest.fixture
def trial(deployment: Deployment) -> Deployment:
    deployment.source("numbers")
    return deployment


def test_a_condition_calls_nothing_by_reflection(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.numbers') }}")
    trial.land("numbers", range(20))
    assert trial.run().failed == 0
    with trial.opened() as workspace:
        graph = workspace.project.graph
        model, source = graph.interval_model("t.copy"), graph.models["raw.numbers"]
        for attack in ATTACKS:
            with pytest.raises(UsageError, match=r"may not use \w+ \(CallMethodViaReflection\)"):
                request(workspace, model, None, None, where=attack)
            with pytest.raises(UsageError, match=r"may not use \w+ \(CallMethodViaReflection\)"):
                report(workspace, source, ranges((0, 20)), attack, Words("why", "who"))
        with workspace.engine.session.attempt("test/attacked") as attempt:
            assert attempt.spark.sql(GET).collect()[0]["found"] == "no"
        assert request(workspace, model, None, None, where="value > 120").scope == ranges((10, 20))


def test_a_cast_that_fails_in_every_chunk_suspends_the_model_after_a_few_attempts(trial: Deployment) -> None:
    trial.model("cast", "select n, cast(concat('x', value) as int) as value from {{ ref('raw.numbers') }}")
    trial.land("numbers", range(3000))
    done = trial.run()
    attempts = trial.execute("select count(*) from attempt")
    assert int(str(attempts[0][0])) <= 12
    assert done.failed > 0
    shown = trial.status("t.cast")
    assert shown["health"] == "suspended"
    assert "t.cast (models/transformations/cast.sql): [CAST_INVALID_INPUT" in str(shown["last_error"])
    trial.model("cast", "select n, try_cast(concat('x', value) as int) as value from {{ ref('raw.numbers') }}")
    assert trial.run().failed == 0
    assert trial.covered("cast") == ranges((0, 3000))


def test_one_bad_chunk_is_left_alone_and_the_others_are_filled(trial: Deployment) -> None:
    cast = "cast(case when n = 1234 then 'x' else value end as int)"
    trial.model("cast", f"select n, {cast} as value from {{{{ ref('raw.numbers') }}}}")
    trial.land("numbers", range(3000))
    assert trial.run().failed > 0
    assert trial.covered("cast") == ranges((0, 1230), (1240, 3000))
    assert trial.status("t.cast")["health"] == "failing"


def test_a_damaged_file_of_a_source_costs_a_few_attempts_and_is_said_once(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.numbers') }}", "interval: 10\nretries: 1")
    trial.land("numbers", range(110))
    [file] = trial.landing("numbers").glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\0" * (len(whole) - 4))
    done = trial.run()
    assert len(done.errors) == 1
    assert file.name in done.errors[0]
    attempts = trial.execute("select count(*) from attempt")
    assert int(str(attempts[0][0])) <= 10
    file.write_bytes(whole)
    assert trial.run().failed == 0
    assert trial.covered("copy") == ranges((0, 110))
