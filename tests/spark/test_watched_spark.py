"""Delta sources whose log only Spark can read: seen, pinned, and watched for rows that come late."""

from __future__ import annotations

import json
import shutil

import pytest
from deployment import Deployment

from penstock.engine.log.handle import FeatureUnsupported, open_table
from penstock.engine.spark.session import Session
from penstock.runtime.observe.sources import NeedsSpark, Observer, SourceObservation
from penstock.values.intervals import ranges

NEWER = "geospatial"
"""A table feature that Delta on Spark has and delta-rs has not."""
ALWAYS = "axis: number\ncompleteness: inclusive\nscan: {incremental: 0, full: 1h}\n"
COPY = "select n, value from {{ ref('raw.numbers') }}"


@pytest.fixture
def trial(deployment: Deployment) -> Deployment:
    deployment.source("numbers", ALWAYS)
    deployment.model("copy", COPY)
    deployment.land("numbers", range(20))
    deployment.land("numbers", range(20, 40))
    return deployment


def make_newer(trial: Deployment, *, feeds: bool) -> None:
    """What a newer writer does: it asks for readers that know a feature."""
    log = trial.landing("numbers") / "_delta_log"
    last = max(log.glob("*.json"))
    metadata = next(
        action["metaData"]
        for file in sorted(log.glob("*.json"))
        for action in map(json.loads, file.read_text().splitlines())
        if "metaData" in action
    )
    if feeds:
        metadata["configuration"]["delta.enableChangeDataFeed"] = "true"
    features = [NEWER, *(["changeDataFeed"] if feeds else [])]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [NEWER], "writerFeatures": features}
    actions = [{"commitInfo": {"operation": "UPGRADE"}}, {"protocol": protocol}, {"metaData": metadata}]
    (log / f"{int(last.stem) + 1:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    with pytest.raises(FeatureUnsupported):
        open_table(str(trial.landing("numbers")))


def insert(trial: Deployment, session: Session, *rows: tuple[int, int]) -> None:
    values = ", ".join(f"({n}L, {value}L)" for n, value in rows)
    with session.attempt("test/insert") as attempt:
        attempt.spark.sql(
            f"insert into delta.`{trial.landing('numbers')}` select * from values {values} as t(n, value)"
        )


def chunks(trial: Deployment) -> list[tuple[int, int]]:
    return [(chunk.start, chunk.end) for task in trial.tasks("copy") for chunk in task.order.chunks]


def test_late_rows_of_a_table_with_a_newer_feature_are_found_by_its_change_feed(
    trial: Deployment, session: Session
) -> None:
    assert trial.run().failed == 0
    make_newer(trial, feeds=True)
    insert(trial, session, (13, 9))
    done = len(chunks(trial))
    assert trial.run().failed == 0
    shown = trial.status("raw.numbers")
    assert (shown["health"], shown["snapshot"], shown["last_error"]) == ("ok", 3, None)
    assert "observed through Spark" in str(shown["reason"])
    assert NEWER in str(shown["reason"])
    insert(trial, session, (27, 9), (44, 1), (49, 1))
    assert trial.run().failed == 0
    assert sorted(chunks(trial)[done:]) == [(10, 20), (20, 30), (40, 50)]
    rows = [(n, n * 7) for n in range(40)] + [(13, 9), (27, 9), (44, 1), (49, 1)]
    assert trial.rows("copy") == sorted(rows)
    reads = trial.execute("select distinct inputs -> 'raw.numbers' ->> 'snapshot' from attempt")
    assert {int(str(one[0])) for one in reads} == {1, 3, 4}, "every read is pinned"
    with trial.opened() as workspace:
        view = workspace.state.views.whole()
        (seen,) = Observer(workspace.resolver, None, workspace.environ).look(["raw.numbers"], view)
        assert isinstance(seen, SourceObservation), "that there is no newer commit is seen without Spark"
        insert(trial, session, (3, 3))
        (seen,) = Observer(workspace.resolver, None, workspace.environ).look(["raw.numbers"], view)
        assert seen == NeedsSpark("raw.numbers")


def test_without_a_change_feed_a_new_snapshot_is_a_change_of_all_that_is_covered_or_of_what_recheck_says(
    trial: Deployment, session: Session
) -> None:
    make_newer(trial, feeds=False)
    assert trial.run().failed == 0
    assert "without a change feed" in str(trial.status("raw.numbers")["reason"])
    insert(trial, session, (13, 9))
    assert trial.run().failed == 0
    assert trial.rows("copy") == sorted([(n, n * 7) for n in range(40)] + [(13, 9)])
    trial.source("numbers", ALWAYS + "recheck: 15\n")
    insert(trial, session, (14, 9), (31, 9))
    done = len(chunks(trial))
    assert trial.run().failed == 0
    assert sorted(chunks(trial)[done:]) == [(20, 30), (30, 40)]
    assert trial.rows("copy") == sorted([(n, n * 7) for n in range(40)] + [(13, 9), (31, 9)])


def test_a_table_that_can_be_read_again_is_observed_by_its_log_and_a_new_one_is_a_new_one(
    trial: Deployment, session: Session
) -> None:
    make_newer(trial, feeds=True)
    assert trial.run().failed == 0
    shutil.rmtree(trial.landing("numbers"))
    trial.land("numbers", range(40), factor=9)
    assert trial.run().failed == 0
    assert trial.rows("copy") == [(n, n * 9) for n in range(40)]
    assert trial.covered("copy") == ranges((0, 40))
    assert trial.status("raw.numbers")["reason"] == "observed"


def test_control_a_feed_that_tells_nothing_leaves_late_rows_unseen(
    trial: Deployment, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.engine.spark import delta_through_spark as foreign
    from penstock.values.changes import NO_CHANGES

    make_newer(trial, feeds=True)
    assert trial.run().failed == 0
    insert(trial, session, (13, 9))
    monkeypatch.setattr(foreign, "changes", lambda *_: NO_CHANGES)
    assert trial.run().failed == 0
    assert trial.rows("copy") == [(n, n * 7) for n in range(40)]
