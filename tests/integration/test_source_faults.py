"""A source that cannot be read right now is not another source."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deployment import Deployment
from object_store import ObjectStore, object_store

from penstock.engine.log.handle import (
    FeatureUnsupported,
    SnapshotGone,
    StoreFault,
    TableForbidden,
    UnreadableLog,
    commits,
    open_table,
)
from penstock.engine.log.newer_commits import goes_on
from penstock.engine.log.storage import place, read_text
from penstock.engine.log.store_client import StoreClient
from penstock.engine.observe.changes import log_changes
from penstock.engine.values.files import PositionColumn
from penstock.errors import SourceError
from penstock.runtime.observe import sources as observing
from penstock.runtime.observe.sources import Observer
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import observe
from penstock.values.intervals import ranges
from penstock.values.models import Source
from penstock.values.records import SourceRecord

COPY = "select n, value from {{ ref('raw.numbers') }}"
NEWER = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}
ALWAYS = "axis: number\nscan: {incremental: 0, full: 0}\n"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    root = tmp_path_factory.mktemp("shelf")
    for n in range(3):
        write_deltalake(str(root / "numbers"), pa.table({"n": [n]}), mode="append")
    with object_store(root) as store:
        yield store


@pytest.fixture
def store(shelf: ObjectStore) -> Iterator[ObjectStore]:
    yield shelf
    shelf.answer(None)


# what kind of trouble it is


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, TableForbidden), (403, TableForbidden), (404, StoreFault), (500, StoreFault), (503, StoreFault)],
)
@pytest.mark.parametrize("version", [None, 1])
def test_a_store_that_refuses_and_one_that_is_out_of_order_are_told_apart(
    store: ObjectStore, status: int, kind: type[UnreadableLog], version: int | None
) -> None:
    store.answer(status)
    with pytest.raises(kind) as caught:
        open_table(store.location("numbers"), version=version, storage=store.options)
    assert str(status) in caught.value.message
    assert "http" not in caught.value.message


def test_a_store_where_nobody_listens_is_a_passing_fault(store: ObjectStore) -> None:
    elsewhere = {**store.options, "aws_endpoint": "http://127.0.0.1:9"}
    with pytest.raises(StoreFault, match="refused"):
        open_table(store.location("numbers"), storage=elsewhere)


def test_a_table_that_is_not_there_is_missing_in_a_folder_and_in_a_store(store: ObjectStore, tmp_path: Path) -> None:
    assert open_table(store.location("nothing"), storage=store.options) is None
    assert open_table(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(
    ("text", "kind"), [('{"add":', StoreFault), (json.dumps({"protocol": NEWER}), FeatureUnsupported)]
)
def test_a_torn_log_passes_and_a_newer_one_stays(tmp_path: Path, text: str, kind: type[UnreadableLog]) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(text)
    with pytest.raises(kind):
        open_table(str(tmp_path))


def test_a_snapshot_that_was_cleaned_away_is_gone(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    with pytest.raises(SnapshotGone):
        open_table(str(tmp_path), version=7)


# what becomes of it


class SparkReadsIt:
    """Bounds as Spark might tell them of a log that we cannot read."""

    def scan_bounds(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, 39


@pytest.fixture
def trial(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers", ALWAYS)
    made.model("copy", COPY)
    made.land("numbers", range(20))
    made.land("numbers", range(20, 40))
    assert made.run().failed == 0
    monkeypatch.setattr(made.engine, "scan_bounds", SparkReadsIt().scan_bounds)
    return made


def last_commit(trial: Deployment) -> Path:
    return max((trial.landing("numbers") / "_delta_log").glob("*.json"))


def torn(trial: Deployment) -> None:
    last_commit(trial).write_text('{"add":')


def missing(trial: Deployment) -> None:
    shutil.rmtree(trial.landing("numbers"))


def empty(trial: Deployment) -> None:
    for file in (trial.landing("numbers") / "_delta_log").iterdir():
        file.unlink()


def cut_off(trial: Deployment) -> None:
    """A store that shows an older list of files, or a restore that is under way."""
    (trial.landing("numbers") / "_delta_log" / f"{0:020d}.json").unlink()


@pytest.mark.parametrize("fault", [torn, missing, empty, cut_off])
def test_what_is_known_of_a_source_outlives_a_passing_fault_and_nothing_is_computed_again(
    trial: Deployment, fault: object
) -> None:
    landing, aside = trial.landing("numbers"), trial.root / "aside"
    shutil.copytree(landing, aside)
    done = trial.tasks()
    fault(trial)  # type: ignore[operator]
    assert trial.run().failed == 0
    shown = trial.status("raw.numbers")
    assert (shown["health"], shown["available"], shown["snapshot"]) == ("failing", [[0, 40]], 1)
    assert shown["reason"] == shown["last_error"] != None  # noqa: E711
    shutil.rmtree(landing, ignore_errors=True)
    shutil.copytree(aside, landing)
    assert trial.run().failed == 0
    assert trial.status("raw.numbers")["last_error"] is None
    assert trial.tasks() == done
    assert not trial.stale("copy")


def test_another_table_after_a_fault_is_another_table(trial: Deployment) -> None:
    torn(trial)
    trial.run()
    missing(trial)
    trial.land("numbers", range(40), factor=9)
    assert trial.run().failed == 0
    assert trial.covered("copy") == ranges((0, 40))
    assert trial.rows("copy") == [(n, n * 9) for n in range(40)]


def test_control_a_fault_that_counts_as_a_table_without_an_id_computes_everything_again(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_id(_: Observer, source: Source, known: SourceRecord, now: datetime, why: str) -> SourceRecord:
        return replace(known, table_id=None, snapshot=None)

    monkeypatch.setattr(observing, "FeatureUnsupported", UnreadableLog)
    monkeypatch.setattr(Observer, "_through_spark", without_id)
    monkeypatch.setattr(observing, "replaced", lambda known, record: known.table_id != record.table_id)
    kept, done = last_commit(trial).read_text(), len(trial.tasks())
    torn(trial)
    with trial.opened() as workspace:
        observe(workspace, Silent())
    last_commit(trial).write_text(kept)
    trial.run()
    assert len(trial.tasks()) > done


def test_a_store_that_fails_in_the_middle_of_a_walk_is_no_change_but_an_error(store: ObjectStore) -> None:
    store.answer(503)
    with pytest.raises(SourceError, match="503") as caught:
        log_changes(store.location("numbers"), PositionColumn("n", "number"), 0, 2, storage=store.options)
    assert "http" not in caught.value.message


def test_one_client_serves_all_files_of_a_table(store: ObjectStore) -> None:
    first, _ = place(store.location("numbers"), "a", store.options)
    again, _ = place(store.location("numbers"), "b", store.options)
    other, _ = place(store.location("others"), "a", store.options)
    assert first is again
    assert first is not other


# who waits for a store that does not answer


def longest_pause(store: ObjectStore, act: Callable[[], object]) -> float:
    """How long another thread stood still while this was asked of a store that answers after a second."""
    pauses: list[float] = []
    done = threading.Event()

    def ask() -> None:
        act()
        done.set()

    asking = threading.Thread(target=ask, daemon=True)
    store.hang()
    last = began = time.monotonic()  # it may stand still from the very start
    asking.start()
    ended = False
    while not ended:
        ended = done.wait(0.005)
        now = time.monotonic()
        pauses.append(now - last)
        last = now
        if now - began > 1:
            store.go_on()
    store.go_on()
    return max(pauses)


@pytest.mark.parametrize("what", ["open", "open a snapshot", "text", "glance", "commits", "checkpoint"])
def test_others_go_on_while_a_store_does_not_answer(store: ObjectStore, what: str) -> None:
    location, storage = store.location("numbers"), {**store.options, "timeout": "5s"}
    asked: dict[str, Callable[[], object]] = {
        "open": lambda: open_table(location, storage=storage),
        "open a snapshot": lambda: open_table(location, version=1, storage=storage),
        "text": lambda: read_text(location, f"_delta_log/{1:020d}.json", storage),
        "glance": lambda: goes_on(location, 1, storage),
        "commits": lambda: list(commits(location, 0, 2, storage)),
        "checkpoint": lambda: read_text(location, "_delta_log/_last_checkpoint", storage),
    }
    assert longest_pause(store, asked[what]) < 2.5


def test_control_a_file_that_is_opened_without_asking_first_stops_everybody(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreClient, "_await_answer", lambda *_: None)
    storage = {**store.options, "timeout": "4s"}
    assert longest_pause(store, lambda: refused(store.location("numbers"), storage)) > 2.5


def refused(location: str, storage: dict[str, str]) -> None:
    with suppress(SourceError):
        read_text(location, f"_delta_log/{2:020d}.json", storage)
