"""One list of column types: what is said there about a type is the same however its values are spelled."""

from __future__ import annotations

import ast
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from penstock.engine.rows.columns import fitted, target_schema
from penstock.engine.spark.scan import bound
from penstock.engine.values import arrow_positions
from penstock.engine.values.arrow_positions import maybe_rounded_up, positions, raw_position, stored_positions
from penstock.engine.values.column_types import COLUMN_TYPES, LONG, TIMESTAMP, PositionType, arrow_type, column_type
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.positions import PositionField, position_field
from penstock.engine.values.schemas import nullable, unknown_type
from penstock.errors import EngineError, QueryError, SourceError
from penstock.values.intervals import MIN_POSITION

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEPT = {
    "timestamp": [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")],
    "timestamp_ntz": [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")],
    "date": [pa.date32()],
    **{name: [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8()] for name in ("byte", "short", "integer")},
    "long": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64()],
}
POSITIONS = {kind.name: kind for kind in COLUMN_TYPES if isinstance(kind, PositionType)}
CASES = [(POSITIONS[name], kind) for name, kinds in KEPT.items() for kind in kinds]


def column(values: list[int | None], kind: pa.DataType) -> pa.ChunkedArray:
    bits = pa.array(values, f"int{kind.bit_width}") if not pa.types.is_integer(kind) else pa.array(values, kind)
    return pa.chunked_array([bits.cast(kind)])


def read(values: list[int | None], kind: PositionType, arrow: pa.DataType) -> list[int | None]:
    at = positions(column(values, arrow), kind)
    assert at is not None and at.type == pa.int64()
    return list(at.to_pylist())


def test_the_cases_below_are_all_types_that_can_carry_positions() -> None:
    assert KEPT.keys() == POSITIONS.keys()


@pytest.mark.parametrize(("kind", "arrow"), CASES)
def test_a_column_and_its_values_one_by_one_stand_for_the_same_positions(
    kind: PositionType, arrow: pa.DataType
) -> None:
    raw = [0, 1, 99, *((-1, -100) if "uint" not in str(arrow) else ())]
    assert read([*raw, None], kind, arrow) == [*(raw_position(value, arrow) for value in raw), None]


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001
def test_a_text_and_a_value_stand_for_the_same_position(moment: datetime) -> None:
    seconds = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    for name, zone in (("timestamp", "UTC"), ("timestamp_ntz", None)):
        kind = POSITIONS[name]
        at = positions(pa.chunked_array([pa.array([moment], pa.timestamp("us", zone))]), kind)
        assert at is not None
        assert kind.text_position(moment.isoformat()) == at[0].as_py() == seconds
    days = positions(pa.chunked_array([pa.array([moment.date()])]), POSITIONS["date"])
    assert days is not None
    assert POSITIONS["date"].text_position(moment.date().isoformat()) == days[0].as_py() == seconds // 86_400 * 86_400


def test_control_arrows_own_division_puts_moments_before_1970_a_second_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read([-1], TIMESTAMP, pa.timestamp("us")) == [-1]
    monkeypatch.setattr(arrow_positions, "floor_divided", pc.divide)
    assert read([-1], TIMESTAMP, pa.timestamp("us")) == [0]


@pytest.mark.parametrize("values", [["1"], [1.0], [True], [None], [date(1970, 1, 1)]])
def test_a_column_of_another_type_tells_no_positions(values: list[object]) -> None:
    other = pa.chunked_array([pa.array(values)])
    assert positions(other, LONG) is None
    with pytest.raises(EngineError, match=r"f\.parquet: its column n is a .* and tells no position"):
        stored_positions(other, PositionField("n", "n", LONG), "f.parquet")


@pytest.mark.parametrize("arrow", [pa.string(), pa.float64(), pa.bool_(), pa.decimal128(9, 0), pa.time64("us")])
def test_values_of_other_types_tell_no_position(arrow: pa.DataType) -> None:
    assert raw_position(1, arrow) is None


@pytest.mark.parametrize(
    ("value", "position"),
    [
        (pa.scalar(datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)), -1),
        (pa.scalar(datetime(1970, 1, 1, 0, 0, 7)), 7),  # noqa: DTZ001
        (pa.scalar(date(1970, 1, 2)), 86_400),
        (pa.scalar(7, pa.int32()), 7),
        (pa.scalar(2**62, pa.timestamp("us", "UTC")), 2**62 // 10**6),  # beyond the years that Python has
        (pa.scalar(None), None),
        (pa.scalar(None, pa.string()), None),
    ],
)
def test_a_bounds_query_may_give_any_type_that_carries_positions(value: pa.Scalar, position: int | None) -> None:
    assert bound(pa.chunked_array([pa.array([value], value.type)])) == position


@pytest.mark.parametrize("value", [True, 1.5, "1", Decimal(1), timedelta(1)])
def test_any_other_bound_is_refused(value: object) -> None:
    with pytest.raises(SourceError, match="a bound must be a timestamp, a date or an integer, not "):
        bound(pa.chunked_array([pa.array([value])]))


def test_only_a_moment_on_a_whole_second_may_have_been_rounded_up() -> None:
    assert maybe_rounded_up(column([0, 1, -1_000_000, -1, None], pa.timestamp("us")), TIMESTAMP) == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert maybe_rounded_up(column([0, 7], pa.timestamp("s")), TIMESTAMP) == [False, False]
    assert maybe_rounded_up(column([0, 7], pa.date32()), POSITIONS["date"]) == [False, False]
    assert maybe_rounded_up(column([0, 7], pa.int32()), LONG) == [False, False]


@pytest.mark.parametrize(
    ("name", "position", "text"),
    [
        ("timestamp", 0, "TIMESTAMP '1970-01-01 00:00:00Z'"),
        ("timestamp", -62_135_596_800, "TIMESTAMP '0001-01-01 00:00:00Z'"),
        ("timestamp", -62_135_596_801, "timestamp_seconds(-62135596801)"),
        ("timestamp_ntz", 253_402_300_799, "TIMESTAMP_NTZ '9999-12-31 23:59:59'"),
        ("timestamp_ntz", 253_402_300_800, "cast(timestamp_seconds(253402300800) as timestamp_ntz)"),
        ("date", 1, "DATE '1970-01-02'"),
        ("date", -86_400, "DATE '1969-12-31'"),
        ("date", 2**62, f"date_from_unix_date({-(-(2**62) // 86_400)})"),
        ("byte", 7, "7"),
        ("long", MIN_POSITION, "(-9223372036854775807 - 1)"),
    ],
)
def test_a_literal_is_the_smallest_value_with_that_position(name: str, position: int, text: str) -> None:
    assert POSITIONS[name].literal(position) == text


def test_every_type_is_known_by_the_names_it_has() -> None:
    for kind in COLUMN_TYPES:
        assert column_type(kind.name) == kind
        assert kind.arrow, kind.name
    assert {column_type("decimal(9,2)"), column_type("decimal(9, 2)")} & {None} == set()
    assert [column_type(odd) for odd in ("decimal(9)", "decimals", "variant", "", {"type": "struct"}, None)] == [
        None
    ] * 6
    assert arrow_type(pa.list_(pa.int64())) is None and arrow_type(pa.null()) is None


def test_what_can_carry_positions_is_said_by_the_list() -> None:
    schema = '{"type":"struct","fields":[{"name":"at","type":"timestamp","metadata":{}},{"name":"s","type":"string"}]}'
    assert position_field(schema, PositionColumn("at", "second")).kind == TIMESTAMP
    with pytest.raises(SourceError, match=r"'s' is a string; .*'second' need a timestamp, a date or an integer column"):
        position_field(schema, PositionColumn("s", "second"))
    with pytest.raises(SourceError, match=r"'at' is a timestamp; .*'block' need an integer column"):
        position_field(schema, PositionColumn("at", "block"))


WIDER = [("byte", "short"), ("byte", "long"), ("integer", "long"), ("float", "double")]
WIDER += [("decimal(9,2)", "decimal(10,3)"), ("decimal(9,2)", "decimal(9,2)")]
NOT_WIDER = [
    ("long", "integer"),
    ("long", "long"),
    ("double", "float"),
    ("integer", "double"),
    ("integer", "decimal(38,0)"),
]
NOT_WIDER += [
    ("decimal(9,2)", "decimal(10,4)"),
    ("string", "binary"),
    ("date", "timestamp"),
    ("timestamp", "timestamp_ntz"),
]


@pytest.mark.parametrize(("narrow", "wide"), [*WIDER, *NOT_WIDER])
def test_a_type_widens_to_those_that_hold_all_its_values(narrow: str, wide: str) -> None:
    known, other = column_type(narrow), column_type(wide)
    assert known is not None and other is not None
    assert known.widens_to(other) == ((narrow, wide) in WIDER)


def struct(**columns: object) -> dict[str, object]:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in columns.items()]}


def test_a_type_that_is_not_in_the_list_is_found_wherever_it_is() -> None:
    inner = struct(fine="long", odd="variant")
    listed = {"type": "array", "elementType": inner}
    mapped = {"type": "map", "keyType": "string", "valueType": listed}
    for kind in (inner, listed, mapped):
        assert unknown_type("a", kind) == ("a.odd", "variant")
    assert unknown_type("a", {"type": "udt", "class": "x"}) == ("a", {"type": "udt", "class": "x"})
    assert all(unknown_type("a", struct(b=kind.name)) is None for kind in COLUMN_TYPES)


def test_nothing_of_a_nullable_type_is_required() -> None:
    strict = {
        "type": "map",
        "keyType": "string",
        "valueContainsNull": False,
        "valueType": {
            "type": "array",
            "containsNull": False,
            "elementType": {"type": "struct", "fields": [{"name": "b", "type": "long", "nullable": False}]},
        },
    }
    assert "False" not in repr(nullable(strict))


def test_spark_can_store_what_the_list_has_and_nothing_else() -> None:
    every = [spark._parse_datatype_json_value(kind.name) for kind in COLUMN_TYPES]
    schema = spark.StructType([spark.StructField(f"c{number}", kind) for number, kind in enumerate(every)])
    assert target_schema(schema, None, add_columns=True) == schema
    for odd, name in ((spark.NullType(), "void"), (spark.VariantType(), "variant"), (spark.TimeType(), r"time\(6\)")):
        nested = spark.StructType([spark.StructField("a", spark.ArrayType(odd))])
        with pytest.raises(QueryError, match=f"column a is of type {name}, which cannot be stored"):
            target_schema(nested, None, add_columns=True)


def test_a_column_of_a_query_is_widened_to_the_tables() -> None:
    narrow, wide = (spark.StructType([spark.StructField("a", kind)]) for kind in (spark.ByteType(), spark.LongType()))
    assert fitted(narrow, wide) == ["cast(`a` as bigint) as `a`"]
    with pytest.raises(QueryError, match="column a is bigint in the query and tinyint in the table"):
        fitted(wide, narrow)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int8(), "-5", -5),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.float32(), "1.5", 1.5),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.decimal128(9, 2), "-0.01", Decimal("-0.01")),
        (pa.string(), "x=1", "x=1"),
        (pa.bool_(), "true", True),
        (pa.bool_(), "False", False),
        (pa.date32(), "1969-12-31", date(1969, 12, 31)),
        (pa.timestamp("us", "UTC"), "1970-01-01 00:00:01.5", EPOCH + timedelta(seconds=1.5)),
        (pa.timestamp("us", "UTC"), "1970-01-01T00:00:01.500000Z", EPOCH + timedelta(seconds=1.5)),
        (pa.timestamp("us"), "1969-12-31 23:59:59", (EPOCH - timedelta(seconds=1)).replace(tzinfo=None)),
    ],
)
def test_a_partition_value_is_read_as_its_type_says(kind: pa.DataType, text: str, value: object) -> None:
    known = arrow_type(kind)
    assert known is not None
    assert pa.scalar(known.text_value(text), kind).as_py() == value


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float64(), pa.decimal128(9, 2), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.binary()]
)
def test_a_partition_value_of_another_type_is_no_value(kind: pa.DataType) -> None:
    known = arrow_type(kind)
    assert known is not None
    with pytest.raises(ValueError, match=r"."):
        known.text_value("some text")


SOURCE = Path(arrow_positions.__file__).parents[2]
NAMES = {kind.name for kind in COLUMN_TYPES}
SHAPES = {"is_nested", "is_struct", "is_map", "is_list", "is_large_list", "is_dictionary", "is_null"}
ELSEWHERE = {
    "engine/log/probe.py": {"integer"},  # a table to try a store with
    "engine/spark/query_rules.py": {"date"},  # what a sequence in a query counts
    # how Arrow lays values out in memory, whatever they mean
    "engine/rows/flat.py": {"is_floating", "is_boolean", "is_string", "is_binary", "is_integer"},
    "engine/rows/hints.py": {"is_string", "is_binary", "is_boolean", "is_integer", "is_temporal", "is_interval"},
    "engine/values/arrow_positions.py": {"is_integer"},
}


def types_named(text: str) -> set[str]:
    """The column types that a module tells from others, by name or by Arrow's tests."""
    nodes = list(ast.walk(ast.parse(text)))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    tests = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pa.types"}
    return (texts & NAMES) | (tests - SHAPES)


def test_no_other_module_tells_one_type_from_another() -> None:
    files = [file for room in ("engine", "runtime", "answers") for file in (SOURCE / room).rglob("*.py")]
    named = {str(file.relative_to(SOURCE)): types_named(file.read_text(encoding="utf-8")) for file in files}
    assert named.pop("engine/values/column_types.py") >= NAMES
    assert {path: types for path, types in named.items() if types} == ELSEWHERE, "ask engine/values/column_types.py"


def test_control_a_second_list_is_found_out() -> None:
    planted = 'PLAIN = {"long", "date"}\nif pa.types.is_timestamp(kind) and not pa.types.is_nested(kind): ...'
    assert types_named(planted) == {"long", "date", "is_timestamp"}
