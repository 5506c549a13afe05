"""Rows that stay when a scope is replaced."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.commit import publish as publish_module
from penstock.engine.commit.publish import FileSetChanged, publish
from penstock.engine.rows.statistics import staged_file
from penstock.engine.stage import kept_rows as keeping
from penstock.engine.stage import replaced_files as head_module
from penstock.engine.stage.kept_rows import keep
from penstock.engine.stage.replaced_files import Head
from penstock.engine.stage.staged import Staged
from penstock.engine.values.column_types import LONG
from penstock.engine.values.files import RUN, DataFile, PositionColumn
from penstock.engine.values.job import Job, StagedChunk
from penstock.engine.values.positions import PositionField
from penstock.errors import EngineError
from penstock.values.intervals import IntervalSet
from penstock.values.tasks import Commit

N, FIELD = PositionColumn("n", "number"), PositionField("n", "n", LONG)
Rows = list[int | None]


def job_for(root: Path, scope: IntervalSet) -> Job:
    return Job(
        model="m.t", location=str(root), position=N, chunks=scope.parts, renderings=(), cut=False, frontier={},
        task=uuid4(), attempt=1, generation="g", epoch=0, digests={},
    )  # fmt: skip


def live(root: Path, name: str, rows: Rows, more: bool = False) -> DataFile:
    table = pa.table({"n": pa.array(rows, pa.int64()), "v": pa.array(range(len(rows)))})
    pq.write_table(table.append_column("w", table.column("v")) if more else table, root / name, row_group_size=3)
    file = staged_file(str(root), name, N)
    return DataFile(name, file.size, file.rows, file.low, file.high, file.nulls, {})


def kept(root: Path, files: list[Rows], scope: IntervalSet) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    job = job_for(root, scope)
    stored = [live(root, f"{at}.parquet", rows, more=bool(at % 2)) for at, rows in enumerate(files) if rows]
    replaced = tuple(file for file in stored if file.meets(scope))
    head = Head(str(root), None, replaced, tuple(file for file in replaced if not file.inside(scope)))
    found = keep(job, head, FIELD, f"{job.task}/1")
    gaps = scope.complement()
    assert all(file.low is None or DataFile(file.path, 0, 1, file.low, file.high, 0, {}).inside(gaps) for file in found)
    before = [pq.read_table(root / file.path) for file in head.straddlers]
    expected = sorted(
        repr(row) for table in before for row in table.to_pylist() if row["n"] is None or row["n"] not in scope
    )
    after = [row for file in found for row in pq.read_table(root / file.path, partitioning=None).to_pylist()]
    bare = [{name: value for name, value in row.items() if name != "w" or value is not None} for row in after]
    assert sorted(map(repr, bare)) == expected
    assert len({file.path for file in found}) == len(found)


files = st.lists(st.lists(st.none() | st.integers(0, 30), max_size=12), max_size=3)
scopes = st.lists(st.tuples(st.integers(0, 28), st.integers(1, 5)), min_size=1, max_size=4).map(
    lambda some: IntervalSet.of((start, start + size) for start, size in some)
)


def test_every_row_outside_the_scope_is_kept_once_and_no_file_spans_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "FILE_ROWS", 4)

    @effort(60)
    @given(files, scopes)
    def holds(some: list[Rows], scope: IntervalSet) -> None:
        kept(tmp_path / "table", some, scope)

    holds()


def test_a_keeper_that_loses_the_end_of_a_gap_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Rows = [*range(10)]
    scope = IntervalSet.of([(4, 6)])
    kept(tmp_path / "table", [whole], scope)
    apart = keeping._Keeping._apart
    monkeypatch.setattr(
        keeping._Keeping, "_apart", lambda self, rows: ((gap, one.slice(0, 1)) for gap, one in apart(self, rows))
    )
    with pytest.raises(AssertionError):
        kept(tmp_path / "table", [whole], scope)


def test_a_file_that_cannot_be_read_fails_the_attempt_and_says_which(tmp_path: Path) -> None:
    file = live(tmp_path, "a.parquet", [1, 2, 3])
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing of the kind")
    job = job_for(tmp_path, IntervalSet.of([(2, 3)]))
    with pytest.raises(EngineError, match=r"a\.parquet"):
        keep(job, Head(str(tmp_path), None, (file,), (file,)), FIELD, "t/1")


# many small files


def tip(root: Path, count: int, rows_each: int = 2) -> None:
    """A table whose newest rows lie in so many small files."""
    for at in range(count):
        start = at * 10
        table = pa.table({"n": pa.array(range(start, start + rows_each), pa.int64()), "v": pa.array([at] * rows_each)})
        write_deltalake(str(root), table, mode="append")


def published(root: Path, job: Job, head: Head, new: pa.Table) -> Commit | FileSetChanged:
    """What an attempt does after its query, without Spark."""
    folder = f"{job.task}/{job.attempt}"
    (root / folder).mkdir(parents=True)
    pq.write_table(new, root / folder / "new.parquet")
    return publish(
        Staged(
            job=job,
            base_version=head.version,
            schema_json=str(Schema.from_arrow(new.schema).to_json()),
            files=(staged_file(str(root), f"{folder}/new.parquet", N),),
            kept=keep(job, head, FIELD, folder),
            replaced=tuple(file.path for file in head.replaced),
            chunks=tuple(StagedChunk(chunk, new.num_rows, None, changed=True) for chunk in job.chunks),
        ),
        lambda _: None,
    )


def one_more(root: Path, at: int) -> tuple[Job, pa.Table]:
    new = pa.table({"n": pa.array([at * 10], pa.int64()), "v": pa.array([at])})
    return job_for(root, IntervalSet.of([(at * 10, at * 10 + 10)])), new


def test_many_small_files_beside_the_scope_become_one(tmp_path: Path) -> None:
    tip(tmp_path, 20)
    before = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    job, new = one_more(tmp_path, 20)
    head = Head.of(job, None, gather=True)
    assert len(head.replaced) == 20
    assert isinstance(published(tmp_path, job, head, new), Commit)
    table = DeltaTable(str(tmp_path))
    assert len(table.file_uris()) == 2
    after = table.to_pyarrow_table().to_pylist()
    assert sorted(map(repr, after)) == sorted(map(repr, [*before, {"n": 200, "v": 20}]))


def test_few_small_files_and_large_ones_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tip(tmp_path, 15)
    job, _ = one_more(tmp_path, 15)
    assert Head.of(job, None, gather=True).replaced == ()
    tip(tmp_path, 0)
    write_deltalake(str(tmp_path), pa.table({"n": [145], "v": [1]}), mode="append")
    assert len(Head.of(job, None, gather=True).replaced) == 16
    monkeypatch.setattr(head_module, "SMALL_ROWS", 1)
    assert len(Head.of(job, None, gather=True).replaced) == 0, "the first large one ends the stretch"


def test_when_somebody_took_a_gathered_file_the_attempt_stages_again(tmp_path: Path) -> None:
    tip(tmp_path, 20)
    job, new = one_more(tmp_path, 20)
    head = Head.of(job, None, gather=True)
    DeltaTable(str(tmp_path)).delete("n = 50")
    assert isinstance(published(tmp_path, job, head, new), FileSetChanged)
    assert Head.of(job, None).replaced == ()


def test_without_the_look_at_gathered_files_their_deleted_rows_would_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip(tmp_path, 20)
    job, new = one_more(tmp_path, 20)
    head = Head.of(job, None, gather=True)
    DeltaTable(str(tmp_path)).delete("n = 50")
    monkeypatch.setattr(publish_module, "moved", lambda *_: None)
    assert isinstance(published(tmp_path, job, head, new), Commit)
    assert 50 in DeltaTable(str(tmp_path)).to_pyarrow_table().column("n").to_pylist()


def test_a_table_written_in_several_stretches_at_once_can_be_replaced_afterwards(tmp_path: Path) -> None:
    tip(tmp_path, 1)
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    (path,) = tmp_path.glob("*.parquet")
    (tmp_path / "t" / "1" / f"{RUN}=0").mkdir(parents=True)
    path.rename(tmp_path / "t" / "1" / f"{RUN}=0" / path.name)
    log.write_text(log.read_text().replace(path.name, f"t/1/{RUN}=0/{path.name}"))
    job, _ = one_more(tmp_path, 0)
    assert len(Head.of(job, None).replaced) == 1


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.list_(pa.string_view())], ids=str)
def test_rows_of_any_order_are_kept_whatever_kind_of_text_their_writer_chose(tmp_path: Path, kind: pa.DataType) -> None:
    """As delta-rs leaves them after an UPDATE of several files."""
    numbers = [7, 1, 12, 3, 25]
    texts = [[str(n)] if pa.types.is_list(kind) else str(n) for n in numbers]
    foreign = pa.table({"n": pa.array(numbers, pa.int64()), "s": pa.array(texts, kind)})
    own = pa.table({"n": pa.array([4, 5], pa.int64()), "s": pa.array([texts[0]] * 2)})
    pq.write_table(foreign, tmp_path / "foreign.parquet")
    pq.write_table(own, tmp_path / "own.parquet")
    files = [staged_file(str(tmp_path), name, N) for name in ("foreign.parquet", "own.parquet")]
    stored = tuple(DataFile(one.path, one.size, one.rows, one.low, one.high, one.nulls, {}) for one in files)
    scope = IntervalSet.of([(5, 10)])
    job = job_for(tmp_path, scope)
    found = keep(job, Head(str(tmp_path), None, stored, stored), FIELD, f"{job.task}/1")
    rows = [row for file in found for row in pq.read_table(tmp_path / file.path).to_pylist()]
    assert sorted((row["n"], row["s"]) for row in rows) == [
        (1, texts[1]), (3, texts[3]), (4, texts[0]), (12, texts[2]), (25, texts[4])
    ]  # fmt: skip
