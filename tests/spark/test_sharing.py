"""Does one query over rows that carry their chunk give each chunk the rows of its own query?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest
from generated_queries import Author

from penstock.engine.spark import tags
from penstock.engine.spark.read import Reader
from penstock.engine.spark.tags import end_of
from penstock.engine.values.job import InputRead, Tags
from penstock.project.queries import sharing
from penstock.project.queries.sharing import Share, Unshareable, shared
from penstock.project.templates.rendering import PLACEHOLDER_BOUNDS
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import TAG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import Bench

Rows = Counter[tuple[object, ...]]
SITUATIONS = (
    ((Interval(0, 10), Interval(10, 20), Interval(50, 60)), (0, 0)),
    ((Interval(0, 7), Interval(7, 20), Interval(33, 34)), (3, 25)),
    ((Interval(0, 10), Interval(20, 30)), (12, 0)),
    ((Interval(0, 7), Interval(40, 55)), (0, 0)),
    ((Interval(0, 10), Interval(10, 20), Interval(20, 30)), (45, 0)),
    ((Interval(0, 5), Interval(50, 55)), (31, 22)),
)
"""Chunks on a grid and others, and how far they look before and after: further than all chunks reach, too."""
EXAMPLES = 600 if os.environ.get("PENSTOCK_FUZZ") else 16


pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def tables(bench: Bench) -> Bench:
    def put(name: str, step: int) -> None:
        at = [p for p in range(-20, 80) for _ in range((p * step) % 3)]
        ks = [None if (p + i) % 11 == 0 else (p * 7 + i * step) % 5 for i, p in enumerate(at)]
        xs = [(p * 13 + i * 5) % 9 for i, p in enumerate(at)]
        kinds = {"p": pa.int64(), "k": pa.int32(), "x": pa.int32()}
        columns = {"p": at, "k": ks, "x": xs}
        bench.put(name, **{key: pa.array(values, kinds[key]) for key, values in columns.items()})

    put("sharing_a", 1)
    put("sharing_b", 4)
    bench.put("sharing_l", k=pa.array([0, 1, 1, 3], pa.int32()), y=pa.array([2, 7, 8, 1], pa.int32()))
    return bench


class Situation:
    """Some chunks, and what their queries see: views that stay for all queries."""

    def __init__(self, bench: Bench, spark: SparkSession, number: int) -> None:
        self._bench, self._spark, self._reader = bench, spark, Reader(spark)
        self._chunks, self._look = SITUATIONS[number]
        self._names = {table: f"penstock_in_{number}_{table}" for table in "abl"}
        for table, name in self._names.items():
            self._view(table, name, self._chunks, tagged=True)
        self._alone = [{table: f"alone_{number}_{n}_{table}" for table in "abl"} for n in range(len(self._chunks))]
        for chunk, names in zip(self._chunks, self._alone, strict=True):
            for table, name in names.items():
                self._view(table, name, (chunk,), tagged=False)

    def _view(self, table: str, name: str, chunks: tuple[Interval, ...], tagged: bool) -> None:
        read = self._bench.input(f"sharing_{table}", None if table == "l" else "p", "slot", view=name)
        if table != "l":
            before, after = self._look
            window = IntervalSet.of((one.start - before, one.end + after) for one in chunks)
            given = Tags(chunks, before, after) if tagged else None
            read = InputRead(name, read.name, read.pin, position=read.position, window=window, tags=given)
        self._reader.frame(self._reader.planned(read)).createOrReplaceTempView(name)

    def one_by_one(self, sql: str) -> DataFrame:
        """Every chunk by its own query; the last column is the chunk's start."""
        found: DataFrame | None = None
        for chunk, names in zip(self._chunks, self._alone, strict=True):
            rows = self._spark.sql(sql.format(**names, start=chunk.start, end=chunk.end))
            rows = rows.selectExpr("*", f"{chunk.start}L as {TAG}")
            found = rows if found is None else found.union(rows)
        assert found is not None
        return found

    def together(self, sql: str) -> DataFrame:
        text = sql.format(**self._names, start=PLACEHOLDER_BOUNDS.start, end=PLACEHOLDER_BOUNDS.end)
        carriers = frozenset((self._names["a"], self._names["b"]))
        made = shared(text, carriers, Share(self._chunks, lambda tag: end_of(tag, self._chunks)))
        return self._spark.sql(made)


def multiset(frame: DataFrame) -> Rows:
    return Counter(tuple(row) for row in frame.collect())


def kinds(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]


def examined(tables: Bench, first: int, count: int, draw: Callable[[Author], str] = Author.query) -> tuple[int, int]:
    """Ask drawn queries both ways; how many were shared, and how many gave any row."""
    common = rows = 0
    with tables.session.attempt(f"test/{uuid4()}") as attempt:
        attempt.spark.conf.set("spark.sql.shuffle.partitions", "1")
        attempt.spark.conf.set("spark.sql.adaptive.enabled", "false")
        attempt.spark.conf.set("spark.sql.codegen.wholeStage", "false")
        situations = [Situation(tables, attempt.spark, number) for number in range(len(SITUATIONS))]
        for seed in range(first, first + count):
            sql, situation = draw(Author(seed)), situations[seed % len(situations)]
            try:
                many = situation.together(sql)
            except Unshareable:
                continue
            single = situation.one_by_one(sql)
            common += 1
            assert kinds(many) == kinds(single), (seed, sql)
            expected = multiset(single)
            assert multiset(many) == expected, (seed, sql)
            rows += bool(expected)
    return common, rows


def test_any_query_gives_each_chunk_what_its_own_query_gives(tables: Bench) -> None:
    common, rows = examined(tables, int(os.environ.get("PENSTOCK_SEED", "0")), EXAMPLES)
    assert common > EXAMPLES // 3, "most of what is drawn can be shared"
    assert rows > common // 2, "and gives rows"


def test_a_chain_of_joins_keeps_the_rows_of_all_sides(tables: Bench) -> None:
    common, rows = examined(tables, 0, EXAMPLES, Author.chain)
    assert common > EXAMPLES // 3 and rows > common // 2


def test_without_the_tag_in_a_group_the_difference_is_found(tables: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setattr(sharing, "_partition", lambda window, tag: None)
    with pytest.raises(AssertionError):
        examined(tables, 0, 20)


def test_without_the_look_back_the_difference_is_found(tables: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    honest = tags.tagged
    monkeypatch.setattr(
        "penstock.engine.spark.read.tagged", lambda frame, field, given: honest(frame, field, Tags(given.chunks))
    )
    with pytest.raises(AssertionError):
        examined(tables, 0, 20)
