"""Rows that came and went with rewritten files, of every type, compared as multisets."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import FileIO
from pathlib import Path
from random import Random
from threading import Barrier, BrokenBarrierError, Thread

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.observe import change_rows as positioned
from penstock.engine.observe import file_rows as touched
from penstock.engine.observe import unequal_rows as module
from penstock.engine.observe.change_rows import change_rows, rows_by_position
from penstock.engine.observe.deletion_vectors import Part
from penstock.engine.observe.file_rows import LogScan, ReadBudget
from penstock.engine.rows import multisets, runs
from penstock.engine.rows.multisets import POSITION, WEIGHT, Sides
from penstock.engine.values.column_types import LONG
from penstock.engine.values.files import DataFile
from penstock.engine.values.positions import PositionField
from penstock.values.intervals import EVERYTHING

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAIR = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.decimal128(9, 2))])))])
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("small", pa.float32()),
        ("d", pa.decimal128(12, 3)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("o", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("pair", PAIR),
        ("texts", pa.list_(pa.string())),
        ("numbers", pa.list_(pa.float64())),
        ("flags", pa.list_(pa.bool_())),
        ("map", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)
floats = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])
texts = st.sampled_from(["", "a", "ab", "b", None])
cents = st.sampled_from([Decimal("1.50"), Decimal("0.00"), None])
inner = st.none() | st.fixed_dictionaries({"z": cents})
pairs = st.fixed_dictionaries({"x": st.sampled_from([0, 1, None]), "y": st.none() | st.lists(inner, max_size=2)})
entries = st.tuples(st.sampled_from("kl"), st.none() | st.lists(st.integers(0, 1), max_size=2))
PLAIN = dict.fromkeys(SCHEMA.names)
rows = st.lists(
    st.one_of(
        [
            st.fixed_dictionaries({"n": st.integers(0, 2), name: values}).map(lambda one: {**PLAIN, **one})
            for name, values in {
                "f": floats,
                "small": floats,
                "d": st.sampled_from([Decimal("1.500"), Decimal("-1.500"), None]),
                "s": texts,
                "b": st.sampled_from([b"", b"\0", b"\0\0", None]),
                "o": st.sampled_from([True, False, None]),
                "day": st.sampled_from([date(1969, 12, 31), date(1970, 1, 1), None]),
                "at": st.sampled_from([NOON, NOON + timedelta(microseconds=1), None]),
                "ntz": st.sampled_from([NOON.replace(tzinfo=None), None]),
                "pair": st.none() | pairs,
                "texts": st.none() | st.lists(texts, max_size=3),
                "numbers": st.none() | st.lists(floats, max_size=3),
                "flags": st.none() | st.lists(st.sampled_from([True, False, None]), max_size=3),
                "map": st.none() | st.lists(entries, max_size=2, unique_by=lambda one: one[0]),
            }.items()
        ]
    ),
    max_size=12,
)


def look(root: Path, *, name: str = "n", **budget: int) -> LogScan:
    return LogScan(str(root), PositionField(name, name, LONG), "number", EVERYTHING, None, ReadBudget(**budget))


def part(root: Path, name: str, table: pa.Table, *, row_group_size: int = 4, **options: object) -> Part:
    pq.write_table(table, root / name, row_group_size=row_group_size, **options)
    size = (root / name).stat().st_size
    return Part(DataFile(name, size, table.num_rows, None, None, None, {}))


def spelled(value: object) -> object:
    """Numbers by their bits, but NaN as NaN."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple((key, spelled(one)) for key, one in value.items())
    return tuple(spelled(one) for one in value) if isinstance(value, list | tuple) else value


def multiset(table: pa.Table) -> Counter[object]:
    return Counter(spelled(row) for row in table.to_pylist())


def difference(old: pa.Table, new: pa.Table) -> Counter[object]:
    found = multiset(new)
    found.subtract(multiset(old))
    return Counter({row: count for row, count in found.items() if count})


def told(found: pa.Table | None) -> Counter[object]:
    assert found is not None
    weights = found.column(WEIGHT).to_pylist()
    rows = found.select(SCHEMA.names).to_pylist() if found.num_rows else []
    counted: Counter[object] = Counter()
    for row, weight in zip(rows, weights, strict=True):
        assert weight != 0
        counted[spelled(row)] += weight
    return counted


def check(root: Path, old: list[dict[str, object]], new: list[dict[str, object]], cut: int) -> None:
    before, after = (pa.Table.from_pylist(some, SCHEMA) for some in (old, new))
    gone = [part(root, "old.parquet", before)]
    came = [part(root, f"new{at}.parquet", piece) for at, piece in enumerate((after.slice(0, cut), after.slice(cut)))]
    found = change_rows(look(root), gone, came, frozenset(SCHEMA.names))
    assert told(found) == difference(before, after)
    expected = {row[0][1] for row in difference(before, after)}  # type: ignore[index]
    assert found is not None
    assert set(rows_by_position(found).column("position").to_pylist()) == expected


@pytest.mark.parametrize(
    ("few", "fewest"),
    [(1, runs.FEWEST_ROWS), (1, 1), (multisets.FEW_ROWS, runs.FEWEST_ROWS)],
    ids=["by hints", "by runs", "grouped"],
)
def test_exactly_the_rows_that_are_not_on_both_sides_are_told_whatever_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, fewest: int
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 3)
    monkeypatch.setattr(module, "PIECE_ROWS", 2)
    monkeypatch.setattr(multisets, "FEW_ROWS", few)
    monkeypatch.setattr(runs, "FEWEST_ROWS", fewest)
    monkeypatch.setattr(runs, "ANCHOR_EVERY", 2)
    by_texts = 0
    hints = multisets.row_hints

    def counted(rows: pa.Table, *, texts: bool) -> pa.Array:
        nonlocal by_texts
        by_texts += texts
        return hints(rows, texts=texts)

    monkeypatch.setattr(multisets, "row_hints", counted)

    @effort(50)
    @given(rows, rows, rows, st.integers(0, 4), st.randoms(use_true_random=False))
    def holds(shared: list[dict[str, object]], went: list[dict[str, object]], came: list[dict[str, object]],
              cut: int, order: Random) -> None:  # fmt: skip
        old, new = [*shared, *went], [*came, *shared]
        if cut % 2:
            order.shuffle(new)
        check(tmp_path, old, new, cut)

    holds()
    assert (by_texts > 0) is (few == 1)


def without_texts(rows: pa.Table) -> pa.Table:
    return rows.select([name for name in rows.column_names if name != "texts"])


@pytest.mark.parametrize("broken", ["equal_rows", "flat_table"])
def test_a_comparison_that_leaves_a_column_out_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    old: list[dict[str, object]] = [{**PLAIN, "n": 1, "texts": ["a", "bc"]}]
    new: list[dict[str, object]] = [{**PLAIN, "n": 1, "texts": ["ab", "c"]}, {**PLAIN, "n": 2}]
    check(tmp_path, old, new, 2)
    whole = getattr(multisets, broken)
    for one in (module, multisets) if broken == "equal_rows" else (multisets,):
        monkeypatch.setattr(one, broken, lambda *some: whole(*(without_texts(one) for one in some)))
    with pytest.raises(AssertionError):
        check(tmp_path, old, new, 2)


def test_rows_with_the_same_hint_go_only_when_they_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old: list[dict[str, object]] = [{**PLAIN, "n": n, "s": "a"} for n in (1, 2, 2, 2)]
    new: list[dict[str, object]] = [{**PLAIN, "n": n, "s": text} for n, text in ((2, "a"), (1, "b"), (2, "a"))]
    monkeypatch.setattr(multisets, "FEW_ROWS", 1)
    check(tmp_path, old, new, 1)
    whole = multisets.equal_rows
    monkeypatch.setattr(multisets, "equal_rows", lambda *some: whole(*(one.drop_columns(["s"]) for one in some)))
    with pytest.raises(AssertionError):
        check(tmp_path, old, new, 1)


def test_rows_that_differ_in_texts_alone_meet_their_like_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = pa.table({"n": pa.array([1] * 4000), "s": [f"name {number}" for number in range(4000)]})
    turned = names.take(pa.array(range(3999, -1, -1)))
    sides = [part(tmp_path, "a", names, row_group_size=700)], [part(tmp_path, "b", turned, row_group_size=300)]
    monkeypatch.setattr(multisets, "FEW_ROWS", 1)
    both = Sides(*(rows.append_column(POSITION, rows.column("n")) for rows in (names, turned)))
    multisets.drop_pairs(both)
    assert (both.gone.num_rows, both.came.num_rows) == (0, 0)
    found = change_rows(look(tmp_path), *sides, frozenset("ns"))
    assert found is not None
    assert found.num_rows == 0


def test_wide_rows_are_read_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pa.table({"n": pa.array(range(400)), "s": [f"{number}" * 100 for number in range(400)]})
    one = part(tmp_path, "wide", wide, row_group_size=400, compression="none")
    footer = pq.read_metadata(tmp_path / "wide")
    monkeypatch.setattr(module, "BATCH_BYTES", one.file.size // 4)
    assert 80 < module.piece_rows(footer) <= 110


_POOLS: list[pa.MemoryPool] = []
"""What a pool gave out must not outlive it."""


@contextmanager
def most_memory() -> Iterator[Callable[[], int]]:
    """What Arrow takes at most, in bytes."""
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool.max_memory
    finally:
        pa.set_memory_pool(usual)


@pytest.mark.parametrize("bounded", [True, False], ids=["in pieces", "control: as large as on disk"])
def test_one_long_text_in_every_row_takes_no_more_memory_than_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounded: bool
) -> None:
    """On disk it is there once."""
    monkeypatch.setattr(module, "BATCH_BYTES", 2**20)
    monkeypatch.setattr(module, "PIECE_ROWS", 64 if bounded else 10_000)
    count, text = 5000, "x" * 10_000
    old = pa.table({"n": pa.array(range(count)), "s": [text] * count})
    new = pa.table({"n": pa.array(range(count)), "s": [*[text] * (count - 1), "y"]})
    sides = [part(tmp_path, "a", old, row_group_size=count)], [part(tmp_path, "b", new, row_group_size=count)]
    assert max(one.file.size for side in sides for one in side) < 100_000
    with most_memory() as most:
        found = change_rows(look(tmp_path), *sides, frozenset("ns"))
    assert found is not None
    assert found.column(POSITION).to_pylist() == [count - 1] * 2
    assert (most() < 16 * 2**20) is bounded


def numbers(values: range, factor: int = 7) -> pa.Table:
    n = pa.array(values, pa.int64())
    return pa.table({"n": n, "v": pc.multiply(n, factor)})


def test_rows_in_another_order_meet_their_like(tmp_path: Path) -> None:
    table = numbers(range(20_000))
    turned = table.take(pa.array(range(19_999, -1, -1)))
    sides = [part(tmp_path, "a", table, row_group_size=5000)], [part(tmp_path, "b", turned, row_group_size=3000)]
    found = change_rows(look(tmp_path), *sides, frozenset("nv"))
    assert found is not None
    assert found.num_rows == 0


@pytest.mark.parametrize("known", [True, False], ids=["by first rows", "control: by their lowest values"])
def test_a_file_that_came_back_as_several_is_compared_in_its_own_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Rows of a file need not be sorted; those that do not meet in their order are dear."""
    if not known:
        monkeypatch.setattr(module, "MOST_CHOICES", 0)
    kept: list[int] = []
    summed = module.summed_rows
    monkeypatch.setattr(module, "summed_rows", lambda rows: kept.append(rows.num_rows) or summed(rows))
    high, low, changed = numbers(range(500, 900)), numbers(range(300)), numbers(range(300, 310), factor=8)
    old = [part(tmp_path, "a", pa.concat_tables([high, low, numbers(range(300, 310))]))]
    new = [part(tmp_path, "b", pa.concat_tables([low, changed])), part(tmp_path, "c", high)]
    found = change_rows(look(tmp_path), old, new, frozenset("nv"))
    assert found is not None
    assert sorted(found.column(POSITION).to_pylist()) == sorted([*range(300, 310)] * 2)
    assert (sum(kept) < 50) is known


class CountingFiles:
    """Files as Arrow has them, and how many bytes of them were read."""

    read = 0

    class File(FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(-1 if size is None else size)
            CountingFiles.read += len(found)
            return found

    @classmethod
    def open_input_file(cls, path: str) -> pa.NativeFile:
        return pa.PythonFile(cls.File(path), mode="r")


@pytest.mark.parametrize("stepwise", [True, False], ids=["in steps", "control: a row group at once"])
def test_first_rows_cost_little_and_count_against_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stepwise: bool
) -> None:
    if not stepwise:
        monkeypatch.setattr(module, "_STEP_BYTES", 0)
    shuffled = [one * 7919 % 400_000 for one in range(400_000)]
    table = pa.table({"n": pa.array(range(400_000)), "v": shuffled})
    pages: dict[str, object] = {"row_group_size": 400_000, "use_dictionary": False, "compression": "none"}
    one = part(tmp_path, "a", table, data_page_size=2**16, **pages)  # type: ignore[arg-type]
    mine = look(tmp_path)
    source = module.opened_part(mine, one)
    reader = positioned.position_reader(mine, [source], frozenset("nv"))
    monkeypatch.setattr(touched, "place", lambda root, path, _: (CountingFiles, str(Path(root, path))))
    CountingFiles.read = 0
    first = module.first_row(reader, source)
    assert first is not None
    assert first.column("n").to_pylist() == [0]
    assert CountingFiles.read > 0
    assert (CountingFiles.read < one.file.size // 4) is stepwise
    monkeypatch.setattr(module, "FIRST_BYTES", 2**18)
    assert module.first_bytes(source.footer) == 2 * 2**18
    for size, rows in ((2**19 - 1, 0), (2**19, 1)):
        poor = look(tmp_path, size=size)
        stream = module.Stream(positioned.position_reader(poor, [source], frozenset("nv")), [source])
        assert [stream.first(source) is not None for _ in range(2)] == [rows == 1] * 2
        assert poor.budget.size == (size if not rows else 0), "paid once"


def test_more_rows_left_over_than_memory_is_given_for_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = [part(tmp_path, "a", numbers(range(2000)))], [part(tmp_path, "b", numbers(range(2000), 9))]
    assert change_rows(look(tmp_path), *sides, frozenset("nv")) is not None
    monkeypatch.setattr(module, "FEW_HELD_BYTES", 10_000)
    assert change_rows(look(tmp_path), *sides, frozenset("nv")) is not None, "once more, with more memory"
    monkeypatch.setattr(module, "MOST_HELD_BYTES", 10_000)
    assert change_rows(look(tmp_path), *sides, frozenset("nv")) is None


def in_order(count: int, factor: int) -> pa.Table:
    return numbers(range(count), factor).append_column("w", pa.array(range(count)))


def only_texts(count: int, factor: int) -> pa.Table:
    names = [f"text number {number * factor % count}" for number in range(count)]
    return pa.table({"n": pa.repeat(pa.scalar(1), count), "s": names})


@pytest.mark.parametrize(("rows", "times"), [(in_order, 4), (only_texts, 5)])
def test_comparing_rows_takes_a_few_times_the_memory_of_what_is_held(
    rows: Callable[[int, int], pa.Table], times: int
) -> None:
    left, step = module.Leftover(module.MOST_HELD_BYTES), 16_384
    count = 16 * step
    old, new = (rows(count, factor) for factor in (7, 9))
    with most_memory() as most:
        for start in range(0, count, step):
            order = pa.array(range(start, start + step))
            for side, came in ((old, False), (new, True)):
                some = side.take(order)
                left.add(some.append_column(POSITION, some.column("n")), came=came)
        held = left._bytes
        left.netted()
    assert 1.5 * held < most() < times * held


@pytest.mark.parametrize(
    ("many", "alone", "together"), [(False, True, True), (True, True, False), (True, False, True)],
    ids=["few rows left", "many rows left", "control: many without a lock"],
)  # fmt: skip
def test_many_rows_are_held_by_one_look_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool, alone: bool, together: bool
) -> None:
    two, met = Barrier(2), []

    def meet(*given: object) -> None:
        if many and given[-1] == module.FEW_HELD_BYTES:
            raise module.TooManyRows
        with suppress(BrokenBarrierError):
            two.wait(20 if together else 0.5)
            met.append(True)

    monkeypatch.setattr(positioned, "_compared", meet)
    if not alone:
        monkeypatch.setattr(module, "_large_in_turn", nullcontext())
    looks = [Thread(target=change_rows, args=(look(tmp_path), [], [], frozenset("n"))) for _ in range(2)]
    for one in looks:
        one.start()
    for one in looks:
        one.join()
    assert bool(met) is together


def test_columns_of_a_type_without_values_are_not_compared(tmp_path: Path) -> None:
    nothing = pa.array([[None], []], pa.list_(pa.null()))
    sides = [[part(tmp_path, name, numbers(range(2)).append_column("x", nothing))] for name in "ab"]
    assert change_rows(look(tmp_path), *sides, frozenset("nvx")) is None


def test_files_beyond_the_budget_are_not_opened(tmp_path: Path) -> None:
    sides = [part(tmp_path, "a", numbers(range(20)))], [part(tmp_path, "b", numbers(range(20), 9))]
    (tmp_path / "a").unlink()
    assert change_rows(look(tmp_path, size=100), *sides, frozenset("nv")) is None
    mine = look(tmp_path)
    assert change_rows(mine, *sides, frozenset("nv")) is None, "gone"
    assert mine.budget.size < ReadBudget().size


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (pa.array([1, 2], pa.int32()), pa.array([1, 3], pa.int64()), [(1, -1), (1, 1)]),
        (pa.array([1, 2]).cast(pa.timestamp("us")), pa.array([1000, 2001]).cast(pa.timestamp("ns")), []),
        (pa.array(["a", None]), pa.array(["a", None]).dictionary_encode(), []),
        (pa.array(["a", "b"], pa.large_string()), pa.array(["a", "c"]), [(1, -1), (1, 1)]),
        (pa.array([None, None], pa.int64()), None, []),
        (None, pa.array([None, 5], pa.int64()), [(1, -1), (1, 1)]),
        (pa.array([1, 2]), pa.array(["1", "2"]), None),
        (pa.array([{"x": 1}, None]), pa.array([{"x": 1, "y": 2}, None]), None),
    ],
    ids=["wider", "nanoseconds", "dictionary", "large", "absent", "added", "other", "struct"],
)
def test_files_of_other_types_are_compared_where_that_is_safe(
    tmp_path: Path, old: pa.Array | None, new: pa.Array | None, expected: list[tuple[int, int]] | None
) -> None:
    sides = []
    for name, column in (("old", old), ("new", new)):
        table = pa.table({"n": pa.array([0, 1])} | ({} if column is None else {"v": column}))
        sides.append([part(tmp_path, name, table)])
    found = change_rows(look(tmp_path), sides[0], sides[1], frozenset("nv"))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        pairs = zip(found.column(POSITION).to_pylist(), found.column(WEIGHT).to_pylist(), strict=True)
        assert sorted(pairs) == expected


def test_a_column_that_the_table_has_no_more_is_no_difference(tmp_path: Path) -> None:
    old = numbers(range(20)).append_column("dropped", pa.array(range(20)))
    sides = [part(tmp_path, "a", old)], [part(tmp_path, "b", numbers(range(20)))]
    found = change_rows(look(tmp_path), *sides, frozenset("nv"))
    assert found is not None
    assert found.num_rows == 0


def test_old_times_are_compared_beyond_2262(tmp_path: Path) -> None:
    far, other = (pa.array([222_000_000_000_000_000, late], pa.timestamp("us")) for late in (-(10**15), -(10**16)))
    sides = [
        [part(tmp_path, name, pa.table({"n": [0, 1], "at": at}), use_deprecated_int96_timestamps=True)]
        for name, at in (("a", far), ("b", other))
    ]
    found = change_rows(look(tmp_path), sides[0], sides[1], frozenset({"n", "at"}))
    assert found is not None
    assert found.column("n").to_pylist() == [1, 1]
