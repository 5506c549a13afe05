"""What the code takes for granted about Spark and Delta; an upgrade that changes one of these facts goes red here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

if TYPE_CHECKING:
    from conftest import Bench

QUIET = PostCommitHookProperties(create_checkpoint=False)


def _rows(bench: Bench, name: str, count: int, start: int = 0) -> str:
    return bench.put(name, id=pa.array(range(start, start + count)))


def _commit(table: DeltaTable, adds: list[AddAction], removes: list[RemoveAction], app: str, retries: int = 0) -> None:
    properties = CommitProperties(app_transactions=[Transaction(app, 1)], max_commit_retries=retries)
    table.create_write_transaction(
        [*adds, *removes],
        "append",
        table.schema(),
        commit_properties=properties,
        post_commithook_properties=QUIET,
    )


def _staged(bench: Bench, name: str, file: str, values: list[int]) -> AddAction:
    path = bench.root / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(values)}), path)
    least, greatest = min(values), max(values)
    stats = {
        "numRecords": len(values),
        "minValues": {"id": least},
        "maxValues": {"id": greatest},
        "nullCount": {"id": 0},
    }
    return AddAction(file, path.stat().st_size, {}, 0, True, json.dumps(stats))


def _remove(table: DeltaTable, name: str) -> RemoveAction:
    return RemoveAction(name, True, 0)


def test_adding_and_removing_is_one_commit_that_spark_reads(bench: Bench) -> None:
    table = DeltaTable(_rows(bench, "one", 5))
    (old,) = pa.table(table.get_add_actions()).column("path").to_pylist()
    _commit(table, [_staged(bench, "one", "task/1/new.parquet", [7, 8])], [_remove(table, old)], "task")
    assert DeltaTable(bench.path("one")).version() == 1
    assert bench.spark_rows("one") == ['{"id":7}', '{"id":8}']
    assert bench.sql(f"select count(*) from delta.`{bench.path('one')}` where id >= 8") == [(1,)]


def test_a_stale_handle_cannot_commit_without_retries(bench: Bench) -> None:
    place = _rows(bench, "stale", 5)
    stale = DeltaTable(place)
    _rows(bench, "stale", 1, 90)
    with pytest.raises(DeltaError):
        _commit(stale, [_staged(bench, "stale", "x/new.parquet", [7])], [], "task")


def test_a_fresh_handle_accepts_a_repeated_task_so_we_must_look_ourselves(bench: Bench) -> None:
    place = _rows(bench, "fresh", 5)
    for number in range(2):
        _commit(DeltaTable(place), [_staged(bench, "fresh", f"x/{number}.parquet", [7])], [], "task")
    table = DeltaTable(place)
    assert (table.version(), table.transaction_version("task")) == (2, 1)
    assert len(bench.rows("fresh")) == 7


def test_the_same_task_from_two_handles_of_one_snapshot_commits_once(bench: Bench) -> None:
    place = _rows(bench, "twice", 5)
    first, second = DeltaTable(place), DeltaTable(place)
    _commit(first, [_staged(bench, "twice", "x/1.parquet", [7])], [], "task")
    with pytest.raises(DeltaError):
        _commit(second, [_staged(bench, "twice", "x/2.parquet", [7])], [], "task", retries=5)


def test_removing_a_file_with_a_deletion_vector_leaves_rows_visible(bench: Bench, with_vector: Path) -> None:
    shutil.copytree(with_vector / "hours", bench.path("vectors"))
    table = DeltaTable(bench.path("vectors"))
    assert pa.table(table.deletion_vectors().read_all()).num_rows == 1
    before = len(bench.spark_rows("vectors"))
    (marked,) = [Path(uri) for uri in pa.table(table.deletion_vectors().read_all()).column("filepath").to_pylist()]
    old = str(Path(*marked.parts[-3:]))
    try:
        _commit(table, [], [_remove(table, old)], "task")
    except DeltaError:
        return  # refused: as good as never removing it
    assert len(bench.spark_rows("vectors")) >= before, "delta-rs can remove such files now: the rule may go"


def test_a_maximum_that_is_too_small_hides_rows_from_spark(bench: Bench) -> None:
    table = DeltaTable(_rows(bench, "hidden", 2))
    honest = _staged(bench, "hidden", "x/new.parquet", [100, 200])
    lying = AddAction(honest.path, honest.size, {}, 0, True, (honest.stats or "").replace("200", "150"))
    _commit(table, [lying], [], "task")
    assert bench.sql(f"select count(*) from delta.`{bench.path('hidden')}` where id > 180") == [(0,)]


def test_spark_reads_unnamed_files_by_our_list_without_a_listing_job(bench: Bench) -> None:
    bench.root.joinpath("files").mkdir()
    for number in range(60):
        pq.write_table(pa.table({"id": [number]}), bench.root / "files" / f"{number}.parquet")
    with bench.session.attempt("test/listing") as attempt:
        frame = attempt.spark.read.schema("id bigint").parquet(*map(str, (bench.root / "files").iterdir()))
        assert attempt.jobs == 0
        assert frame.coalesce(1).groupBy("id").count().count() == 60


def test_one_task_per_input_needs_no_shuffle(bench: Bench) -> None:
    _rows(bench, "a", 50)
    with bench.session.attempt("test/shuffle") as attempt:
        spark = attempt.spark
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        frame = spark.read.schema("id bigint").parquet(*DeltaTable(bench.path("a")).file_uris()).coalesce(1)
        frame.createOrReplaceTempView("a")
        joined = spark.sql(
            "select l.id, count(*) n, row_number() over (order by l.id) r from a l join a using (id) group by 1"
        )
        assert "Exchange" not in joined._jdf.queryExecution().executedPlan().toString()
        assert joined.count() == 50


def test_the_parts_of_a_union_stay_files_of_their_own(bench: Bench) -> None:
    with bench.session.attempt("test/union") as attempt:
        one = attempt.spark.range(10).coalesce(1)
        one.union(one).union(one).write.parquet(bench.path("three"))
    assert len(list(Path(bench.path("three")).glob("*.parquet"))) == 3


def test_observed_sums_are_those_of_the_written_rows(bench: Bench) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    with bench.session.attempt("test/observe") as attempt:
        frame = attempt.spark.range(0, 1000, 1, 4).repartitionByRange(3, "id").sortWithinPartitions("id")
        frame.observe(seen, f.expr("sum(id) as s"), f.expr("sum(if(id < 10, 1L, 0L)) as n")).write.parquet(
            bench.path("seen")
        )
    assert seen.get == {"s": 499500, "n": 10}


def test_null_leaves_a_hash_as_it_is_so_we_mark_it(bench: Bench) -> None:
    moved = "xxhash64(cast(null as int), 7) = xxhash64(7, cast(null as int))"
    assert bench.sql(f"select {moved}, hash(array(1, null)) = hash(array(null, 1))") == [(True, True)]


def test_sessions_keep_views_and_settings_apart(bench: Bench) -> None:
    with bench.session.attempt("test/one") as one, bench.session.attempt("test/two") as two:
        one.spark.range(3).createOrReplaceTempView("mine")
        one.spark.conf.set("spark.sql.shuffle.partitions", "17")
        assert one.spark.catalog.tableExists("mine")
        assert not two.spark.catalog.tableExists("mine")
        assert two.spark.conf.get("spark.sql.shuffle.partitions") != "17"
        assert two.spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_table_id_changes_with_a_replacement_of_a_folder_only(bench: Bench) -> None:
    first = DeltaTable(_rows(bench, "id", 2)).metadata().id
    bench.write("id", "select 1L id, 2L more", mode="overwrite", overwriteSchema="true")
    assert DeltaTable(bench.path("id")).metadata().id == first
    shutil.rmtree(bench.path("id"))
    write_deltalake(bench.path("id"), pa.table({"id": [1]}))
    assert DeltaTable(bench.path("id")).metadata().id != first
