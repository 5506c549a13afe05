"""Publishing on real Delta tables: once, exactly the scope, and never over what somebody else did."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema, write_deltalake

from penstock.engine.commit import properties as committing
from penstock.engine.commit import publish
from penstock.engine.commit.publish import FileSetChanged, checkpoint, find_commit
from penstock.engine.commit.reset import Emptying, empty
from penstock.engine.log import commit_info as notes
from penstock.engine.log import snapshot as log
from penstock.engine.observe.foreign_commits import foreign_commits
from penstock.engine.rows.statistics import staged_file
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import DataFile, PositionColumn
from penstock.engine.values.job import Digest, Job, StagedChunk, StagedFile
from penstock.errors import ConflictError, EngineError, QueryError
from penstock.values.intervals import EVERYTHING, Interval, ranges
from penstock.values.tasks import Commit, Pin

POSITION = PositionColumn("at", "second")
FRONTIER = {"raw.events": Pin("/data/events", 7, "an-id", None), "raw.names": Pin("/data/names", None)}


def rows(*seconds: int, **more: object) -> pa.Table:
    moments = [datetime.fromtimestamp(second, UTC) for second in seconds]
    columns = {name: [value] * len(seconds) for name, value in more.items()}
    numbers = pa.array(seconds, pa.int64())
    return pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC")), "n": numbers, **columns})


def schema_of(table: pa.Table) -> str:
    return str(Schema.from_arrow(table.schema).to_json())


def job_for(root: Path, chunks: Iterable[tuple[int, int]], task: UUID | None = None, **more: object) -> Job:
    job = Job(
        model="m.t",
        location=str(root),
        position=POSITION,
        chunks=tuple(Interval(*chunk) for chunk in chunks),
        renderings=(),
        cut=False,
        frontier=FRONTIER,
        task=task or uuid4(),
        attempt=1,
        generation="g-1",
        epoch=3,
        digests={},
    )
    return replace(job, **more)  # type: ignore[arg-type]


def written(job: Job, table: pa.Table, name: str) -> tuple[StagedFile, ...]:
    if table.num_rows == 0:
        return ()
    path = f"{job.task}/{job.attempt}/{name}.parquet"
    target = Path(job.location) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, target)
    return (staged_file(job.location, path, job.position),)


def stage(job: Job, new: pa.Table, *, keep: bool = True, changed: bool = True) -> Staged:
    """What the Spark half does, in Arrow: new rows, and the rows to keep of the files that straddle the scope."""
    seen = log.snapshot(job.location, job.position)
    met = () if seen is None else seen.meeting(job.scope)
    kept: tuple[StagedFile, ...] = ()
    for number, file in enumerate(met):
        old = pq.read_table(Path(job.location) / file.path, partitioning=None)
        outside = [n not in job.scope for n in old.column("n").to_pylist()]
        if keep:
            kept += written(job, old.filter(pa.array(outside)), f"keep-{number}")
    return Staged(
        job=job,
        base_version=None if seen is None else seen.version,
        schema_json=schema_of(new),
        files=written(job, new, "new"),
        kept=kept,
        replaced=tuple(file.path for file in met),
        chunks=tuple(
            StagedChunk(chunk, new.num_rows, Digest(new.num_rows, 2**70, -1), changed) for chunk in job.chunks
        ),
    )


def no_step(label: str) -> None:
    pass


def run(root: Path, chunks: Iterable[tuple[int, int]], new: pa.Table) -> Commit:
    outcome = publish.publish(stage(job_for(root, chunks), new), no_step)
    assert isinstance(outcome, Commit)
    return outcome


def stored(root: Path) -> list[int]:
    return sorted(DeltaTable(root).to_pyarrow_table().column("n").to_pylist())


def test_the_first_publish_creates_the_table_and_commits_the_rows(tmp_path: Path) -> None:
    steps: list[str] = []
    staged = stage(job_for(tmp_path, [(0, 10), (10, 20)]), rows(0, 5, 15))
    commit = publish.publish(staged, steps.append)
    assert isinstance(commit, Commit)
    assert (commit.snapshot, commit.written, commit.adopted, commit.epoch) == (1, True, False, 3)
    assert commit.changed == ranges((0, 20)) and commit.frontier == FRONTIER
    assert steps == ["table created", "head loaded", "delta committed"]
    assert stored(tmp_path) == [0, 5, 15]
    table = DeltaTable(tmp_path)
    assert table.metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"
    assert table.transaction_version(str(staged.job.task)) == 1
    assert not table.protocol().reader_features


def test_a_task_that_committed_is_adopted_and_not_written_again(tmp_path: Path) -> None:
    task = uuid4()
    first = publish.publish(stage(job_for(tmp_path, [(0, 10)], task), rows(1, 2)), no_step)
    again = job_for(tmp_path, [(0, 10)], task, attempt=2, epoch=9, frontier={})
    second = publish.publish(stage(again, rows(1, 2, 3)), no_step)
    assert isinstance(first, Commit) and isinstance(second, Commit)
    assert second == replace(first, adopted=True)
    assert second.chunks[0].digest == (2, 2**70, -1)
    assert DeltaTable(tmp_path).version() == first.snapshot and stored(tmp_path) == [1, 2]
    assert find_commit(str(tmp_path), task) == second
    assert find_commit(str(tmp_path), uuid4()) is None
    assert find_commit(str(tmp_path / "nowhere"), task) is None


def test_a_commit_says_where_in_a_chunk_rows_differ(tmp_path: Path) -> None:
    staged = stage(job_for(tmp_path, [(0, 10), (10, 20)]), rows(1, 2, 12))
    first, second = staged.chunks
    narrow = replace(staged, chunks=(replace(first, differs=ranges((1, 3))), second))
    commit = publish.publish(narrow, no_step)
    assert isinstance(commit, Commit)
    assert commit.changed == ranges((1, 3), (10, 20))
    assert find_commit(str(tmp_path), staged.job.task) == replace(commit, adopted=True)


def test_a_note_of_an_earlier_release_is_still_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = notes.chunk_noted
    monkeypatch.setattr(notes, "chunk_noted", lambda chunk: whole(chunk)[:5])
    commit = publish.publish(staged := stage(job_for(tmp_path, [(0, 10)]), rows(1, 2)), no_step)
    assert isinstance(commit, Commit)
    assert find_commit(str(tmp_path), staged.job.task) == replace(commit, adopted=True)


def test_without_adoption_the_same_task_commits_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "find_commit", lambda *_, **__: None)
    task = uuid4()
    publish.publish(stage(job_for(tmp_path, [(0, 10)], task), rows(1, 2)), no_step)
    publish.publish(stage(job_for(tmp_path, [(0, 10)], task, attempt=2), rows(1, 2, 3)), no_step)
    assert DeltaTable(tmp_path).version() == 2


def test_adoption_still_works_after_a_checkpoint_and_later_commits(tmp_path: Path) -> None:
    task = uuid4()
    publish.publish(stage(job_for(tmp_path, [(0, 10)], task), rows(1)), no_step)
    run(tmp_path, [(10, 20)], rows(11))
    assert not checkpoint(str(tmp_path)) and checkpoint(str(tmp_path), every=2)
    assert not checkpoint(str(tmp_path), every=2)
    run(tmp_path, [(20, 30)], rows(21))
    found = find_commit(str(tmp_path), task)
    assert found is not None and found.snapshot == 1 and found.adopted
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(EngineError, match="no longer in the log"):
        find_commit(str(tmp_path), task)


def test_replacing_a_scope_leaves_everything_else(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10)], rows(0, 9))
    run(tmp_path, [(10, 20)], rows(10, 19))
    run(tmp_path, [(0, 10)], rows(4))
    assert stored(tmp_path) == [4, 10, 19]


def test_a_file_that_straddles_the_scope_keeps_its_other_rows(tmp_path: Path) -> None:
    run(tmp_path, [(0, 30)], rows(1, 11, 21))
    run(tmp_path, [(10, 20)], rows(12, 13))
    assert stored(tmp_path) == [1, 12, 13, 21]


def test_an_empty_result_removes_the_old_rows_in_one_commit(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10)], rows(1, 2))
    run(tmp_path, [(10, 20)], rows(11))
    commit = run(tmp_path, [(0, 10)], rows())
    assert commit.written and commit.snapshot == 3
    assert stored(tmp_path) == [11]


def test_an_empty_result_over_nothing_needs_no_commit(tmp_path: Path) -> None:
    commit = run(tmp_path, [(0, 10)], rows())
    assert (commit.written, commit.snapshot, DeltaTable(tmp_path).version()) == (False, 0, 0)


def test_equal_chunks_publish_nothing_but_progress(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10)], rows(1, 2))
    job = job_for(tmp_path, [(0, 10)])
    commit = publish.publish(stage(job, rows(1, 2), changed=False), no_step)
    assert isinstance(commit, Commit)
    assert (commit.written, commit.snapshot, bool(commit.changed)) == (False, 1, False)
    assert DeltaTable(tmp_path).version() == 1


def test_a_foreign_commit_in_between_asks_for_new_rows_to_keep(tmp_path: Path) -> None:
    run(tmp_path, [(0, 30)], rows(1, 11, 21))
    job = job_for(tmp_path, [(10, 20)])
    staged = stage(job, rows(12))
    write_deltalake(tmp_path, rows(15, 25), mode="append")
    outcome = publish.publish(staged, no_step)
    assert isinstance(outcome, FileSetChanged)
    assert outcome.version == 2 and len(outcome.live) == 2 and set(staged.replaced) < set(outcome.live)
    publish.publish(stage(job, rows(12)), no_step)
    assert stored(tmp_path) == [1, 12, 21, 25]


def test_without_the_file_set_check_rows_of_the_scope_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "moved", lambda *_: None)
    run(tmp_path, [(0, 30)], rows(1, 11, 21))
    staged = stage(job_for(tmp_path, [(10, 20)]), rows(12))
    write_deltalake(tmp_path, rows(15, 25), mode="append")
    publish.publish(staged, no_step)
    assert 15 in stored(tmp_path)


def test_a_compaction_in_between_never_brings_rows_twice(tmp_path: Path) -> None:
    for start in (0, 10, 20):
        run(tmp_path, [(start, start + 10)], rows(start + 1))
    job = job_for(tmp_path, [(10, 20)])
    staged = stage(job, rows(12))
    DeltaTable(tmp_path).optimize.compact()
    assert isinstance(publish.publish(staged, no_step), FileSetChanged)
    publish.publish(stage(replace(job, attempt=2), rows(12)), no_step)
    assert stored(tmp_path) == [1, 12, 21]


def test_a_foreign_commit_elsewhere_at_the_last_moment_only_costs_a_round(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10)], rows(1))
    staged = stage(job_for(tmp_path, [(10, 20)]), rows(12))
    labels: list[str] = []

    def step(label: str) -> None:
        labels.append(label)
        if labels == ["head loaded"]:
            write_deltalake(tmp_path, rows(35), mode="append")

    commit = publish.publish(staged, step)
    assert isinstance(commit, Commit) and commit.snapshot == 3
    assert labels == ["head loaded", "head loaded", "delta committed"]
    assert stored(tmp_path) == [1, 12, 35]


def test_a_writer_that_is_always_quicker_is_a_conflict(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10)], rows(1))
    staged = stage(job_for(tmp_path, [(10, 20)]), rows(12))
    with pytest.raises(ConflictError, match="came between"):
        publish.publish(staged, lambda _: write_deltalake(tmp_path, rows(35), mode="append"))
    assert 12 not in stored(tmp_path)


def test_a_crash_after_the_commit_is_adopted_by_the_next_attempt(tmp_path: Path) -> None:
    task = uuid4()

    def crash(label: str) -> None:
        if label == "delta committed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish.publish(stage(job_for(tmp_path, [(0, 10)], task), rows(1)), crash)
    commit = publish.publish(stage(job_for(tmp_path, [(0, 10)], task, attempt=2), rows(1)), no_step)
    assert isinstance(commit, Commit) and commit.adopted and DeltaTable(tmp_path).version() == 1


def test_racing_creators_end_with_one_table_and_all_rows(tmp_path: Path) -> None:
    staged = [stage(job_for(tmp_path, [(i * 10, i * 10 + 10)]), rows(i * 10 + 1)) for i in range(4)]
    start = threading.Barrier(4)
    outcomes: list[object] = []

    def work(one: Staged) -> None:
        start.wait()
        try:
            outcomes.append(publish.publish(one, no_step))
        except ConflictError:
            outcomes.append(publish.publish(one, no_step))

    threads = [threading.Thread(target=work, args=(one,)) for one in staged]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(outcome, Commit) for outcome in outcomes)
    assert stored(tmp_path) == [1, 11, 21, 31]
    assert DeltaTable(tmp_path).version() == 4


def test_a_new_column_is_added_and_a_lost_one_stays_null(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10)], rows(1))
    commit = run(tmp_path, [(10, 20)], rows(11, label="x"))
    assert commit.snapshot == 3
    run(tmp_path, [(20, 30)], rows(21))
    table = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n")
    assert table.column("label").to_pylist() == [None, "x", None]


@pytest.mark.parametrize(
    ("new", "names"),
    [
        (lambda: rows(11, label="x"), "label"),
        (lambda: rows(11).select(["at"]), "'n'"),
    ],
)
def test_columns_that_come_or_go_fail_where_the_model_forbids_it(
    tmp_path: Path, new: Callable[[], pa.Table], names: str
) -> None:
    run(tmp_path, [(0, 10)], rows(1))
    job = job_for(tmp_path, [(10, 20)], add_columns=False)
    with pytest.raises(QueryError, match=names):
        publish.publish(stage(job, new()), no_step)
    assert DeltaTable(tmp_path).version() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.set_column(1, "n", pa.array(["a"])), "'n' is now string, but long"),
        (lambda t: t.rename_columns(["at", "N"]), "'N' is spelled 'n'"),
        (lambda t: t.append_column("count(1)", t.column("n")), "alias|no name"),
        (lambda t: t.rename_columns(["when", "n"]), "no column 'at'"),
    ],
)
def test_columns_that_cannot_be_stored_are_the_query_s_fault(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    run(tmp_path, [(0, 10)], rows(1))
    staged = stage(job_for(tmp_path, [(10, 20)]), rows())
    with pytest.raises(QueryError, match=message):
        publish.publish(replace(staged, schema_json=schema_of(change(rows(11)))), no_step)


def test_types_and_names_that_delta_does_not_store_are_refused(tmp_path: Path) -> None:
    fields = [{"name": "at", "type": "timestamp"}, {"name": "nothing", "type": "void"}]
    schema: dict[str, Any] = {"type": "struct", "fields": [{**f, "nullable": True, "metadata": {}} for f in fields]}
    staged = replace(stage(job_for(tmp_path, [(0, 10)]), rows()), schema_json=json.dumps(schema))
    with pytest.raises(QueryError, match="'nothing' has the type void"):
        publish.publish(staged, no_step)
    twice = {**schema, "fields": [schema["fields"][0], {**schema["fields"][1], "name": "AT", "type": "long"}]}
    with pytest.raises(QueryError, match="two columns 'AT'"):
        publish.publish(replace(staged, schema_json=json.dumps(twice)), no_step)
    assert not DeltaTable.is_deltatable(str(tmp_path))


def test_a_column_that_was_never_null_may_become_null(tmp_path: Path) -> None:
    strict = rows(1).cast(
        pa.schema([pa.field("at", pa.timestamp("us", "UTC"), False), pa.field("n", pa.int64(), False)])
    )
    run(tmp_path, [(0, 10)], strict)
    assert all(field.nullable for field in DeltaTable(tmp_path).schema().fields)


def test_the_position_behind_many_columns_still_prunes(tmp_path: Path) -> None:
    wide = {f"c{i:02}": [i] for i in range(40)}
    for second in (1, 11):
        table = pa.table({**wide, **{name: rows(second).column(name) for name in ("at", "n")}})
        run(tmp_path, [(second - 1, second + 9)], table)
    seen = log.snapshot(str(tmp_path), POSITION)
    assert seen is not None and sorted(file.low or 0 for file in seen.files) == [1, 11]
    assert len(seen.meeting(ranges((0, 10)))) == 1


def with_deletion_vector(root: Path) -> DataFile:
    """Rewrites the log so that the only file has one row deleted, as Spark would have done."""
    seen = log.snapshot(str(root), POSITION)
    assert seen is not None
    path = root / "_delta_log" / f"{seen.version:020d}.json"
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91",
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] = vector
    features = ["deletionVectors", "changeDataFeed"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features[:1],
        "writerFeatures": features,
    }
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"protocol": protocol}]))
    return seen.files[0]


def test_a_file_with_a_deletion_vector_is_never_removed(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10)], rows(1, 2, 3))
    file = with_deletion_vector(tmp_path)
    seen = log.snapshot(str(tmp_path), POSITION)
    assert seen is not None and seen.needs_delta_reader == "deletion vectors" and seen.files[0].has_deletion_vector
    with pytest.raises(EngineError, match=f"{file.path}.*deletion vector"):
        publish.publish(stage(job_for(tmp_path, [(0, 10)]), rows(1)), no_step)
    with pytest.raises(EngineError, match=f"{file.path}.*deletion vector"):
        empty(str(tmp_path), Emptying(uuid4(), "t.m", "g", ranges((0, 10))))
    run(tmp_path, [(10, 20)], rows(11))
    assert DeltaTable(tmp_path).version() == 2


def test_a_reset_notes_what_it_emptied_as_an_attempt_does(tmp_path: Path) -> None:
    run(tmp_path, [(0, 10), (10, 20)], rows(1, 12))
    task = uuid4()
    assert empty(str(tmp_path), Emptying(task, "t.m", "g", ranges((0, 20)))) == 2
    (found,) = foreign_commits(str(tmp_path), 1, None, position=POSITION)
    assert (found.task, found.scope, found.is_reset) == (task, ranges((0, 20)), True)
    assert empty(str(tmp_path), Emptying(uuid4(), "t.m", "g", ranges((0, 20)))) == 2


def test_removing_a_file_with_a_deletion_vector_would_leave_it_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, [(0, 10)], rows(1, 2, 3))
    with_deletion_vector(tmp_path)
    monkeypatch.setattr(committing, "check_removable", lambda *_: None)
    run(tmp_path, [(0, 10)], rows(4))
    seen = log.snapshot(str(tmp_path), POSITION)
    assert seen is not None and len(seen.files) == 2


def test_other_readers_find_every_row_through_our_statistics(tmp_path: Path) -> None:
    first = rows(1, 2, label="ä" * 50, flag=True, ratio=0.5)
    run(tmp_path, [(0, 10)], first)
    run(tmp_path, [(10, 20)], rows(11, label=None, flag=None, ratio=None).cast(first.schema))
    table = DeltaTable(tmp_path)
    for condition, expected in [
        ("n > 1", 2),
        ("label > 'a'", 2),
        ("label is null", 1),
        ("flag", 2),
        ("ratio < 0.6", 2),
        ("at >= '1970-01-01T00:00:11Z'", 1),
    ]:
        found = QueryBuilder().register("t", table).execute(f"select n from t where {condition}")
        assert pa.table(found).num_rows == expected, condition
    for column, low, expected in (("n", 2, 2), ("label", "b", 2), ("flag", True, 2)):
        assert table.to_pyarrow_table(filters=[(column, ">=", low)]).num_rows == expected, column


def test_the_audit_finds_what_no_task_of_ours_did(tmp_path: Path) -> None:
    location = str(tmp_path)
    ours, lost = uuid4(), uuid4()
    publish.publish(stage(job_for(tmp_path, [(0, 10)], ours), rows(1)), no_step)
    write_deltalake(tmp_path, rows(15, 18), mode="append")
    DeltaTable(tmp_path).delete("n = 1")
    publish.publish(stage(job_for(tmp_path, [(30, 40)], lost), rows(31)), no_step)
    DeltaTable(tmp_path).optimize.compact()
    found = [one for one in foreign_commits(location, 0, None, position=POSITION) if one.task != ours]
    assert [(one.version, one.scope, one.task) for one in found] == [
        (2, ranges((15, 16), (18, 19)), None),
        (3, ranges((1, 2)), None),
        (4, ranges((30, 40)), lost),
    ]
    assert found[1].operation == "DELETE"
    assert foreign_commits(location, 1, 1, position=POSITION) == ()
    assert foreign_commits(location, 4, None, position=POSITION) == ()
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    assert foreign_commits(location, 1, 2, position=POSITION)[0].scope == EVERYTHING
