"""Which types may a column have, and what is there to know about each of them?

This is the only list of column types that can be stored. They are types of the Delta protocol: other readers must
know them too. A new type is an entry in `COLUMN_TYPES`, and a class when it behaves as no other does; whoever
wants to know something that differs by type asks here. Arrow is imported where its types are made, and not before:
looking at a log needs none.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from penstock.engine.values.moments import DAY, MICROS, PER_SECOND, day_text, micros_of_text, moment_text
from penstock.values.intervals import MIN_POSITION

if TYPE_CHECKING:
    import pyarrow as pa

STRING_LENGTH = 32
"""Bounds of texts in a log are cut to so many characters."""
_DECIMALS = Context(prec=38)
"""Delta's longest: the default of 28 digits would round a bound inwards."""
_LOG_ROUNDING = timedelta(milliseconds=1)
"""Statistics of moments are in milliseconds, and not every writer rounds the greatest one up."""
_DECIMAL = re.compile(r"decimal(?:\((\d+),\s*(-?\d+)\))?")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """What is asked of a type, with the answers of one that has nothing special about it."""

    name: str
    """As Delta and Spark spell it in a schema."""
    feature: str | None = None
    """The table feature that Delta wants for it; it leaves the Parquet files as they look."""

    arrow: ClassVar[str] = ""
    """What Arrow calls it, all names without their parameters; the same for types that differ in width alone."""
    is_time: ClassVar[bool] = False
    may_be_nan: ClassVar[bool] = False
    same_in_paths: ClassVar[bool] = False
    """Partition values are spelled alike in the log and in a Hive-style path."""

    def named(self, name: str) -> ColumnType | None:
        """The type that a schema means by `name`, if it is of this kind."""
        return self if name == self.name else None

    def is_kept_as(self, kind: pa.DataType) -> bool:
        """Whether a file may hold a column of it as Arrow's `kind`."""
        return _word(kind) in self.arrow.split()

    def widens_to(self, wide: ColumnType) -> bool:
        """Whether every value is a value of the other type."""
        return False

    def sql_compared(self, expression: str) -> str:
        """SQL by which two values count as equal when a table is verified."""
        return expression

    def plain(self, kind: pa.DataType) -> pa.DataType:
        """Of Arrow's types that mean the same the one we work with; not every function knows the others."""
        return kind

    def common(self, kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        """What holds the values of two of its Arrow types; None when nothing does."""
        return None

    def cast(self, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """A column in a plain or common type; an error when a value does not fit."""
        return column.cast(kind)

    def values(self, column: pa.ChunkedArray) -> list[object]:
        """Values for Python that are equal when Spark takes them for equal."""
        return list(column.to_pylist())

    def text_value(self, text: str) -> object:
        """A partition value as a log spells it, for Arrow; a ValueError when it is none."""
        return text

    def footer_value(self, raw: object, kind: pa.DataType) -> object:
        """A raw bound of a Parquet footer as a value that has an order; None: we tell no bounds of such columns."""
        return None

    def json_below(self, value: Any, kind: pa.DataType) -> str | None:
        """JSON for a log of a value that is not above `value`; None when there is none."""
        return None

    def json_above(self, value: Any, kind: pa.DataType) -> str | None:
        """JSON for a log of a value that is not below `value`; None when there is none."""
        return self.json_below(value, kind)

    def log_bounds(self, least: Any, greatest: Any) -> tuple[Any, Any] | None:
        """Bounds from a log as values that have an order; None: they tell nothing. An error when they are no such."""
        return None


class Scale(NamedTuple):
    """How the integers of an Arrow column become positions: times the one, rounded down by the other."""

    times: int
    per: int


@dataclass(frozen=True, slots=True)
class PositionType(ColumnType, ABC):
    """A type that can carry positions; a time or date stands for seconds since 1970 in UTC, rounded down."""

    word: ClassVar[str]
    """What to call it, for people."""

    @abstractmethod
    def position_scale(self, kind: pa.DataType) -> Scale | None:
        """What to do with the integers of Arrow's `kind`; None when that is no type for such a column."""

    @abstractmethod
    def literal(self, position: int) -> str:
        """SQL of the smallest value whose position is at least `position`."""

    @abstractmethod
    def sql_position(self, name: str) -> str:
        """SQL of the position of a value of a column."""

    def footer_value(self, raw: object, kind: pa.DataType) -> object:
        return raw if isinstance(raw, int) else None

    def text_position(self, text: str | int) -> int | None:
        """The position of a statistic or partition value as the log spells it; None when it cannot be read."""
        micros = micros_of_text(str(text))
        return None if micros is None else micros // MICROS


@dataclass(frozen=True, slots=True)
class Timestamp(PositionType):
    zone: str = "Z"
    """Of its literals; empty when it has none."""

    arrow: ClassVar[str] = "timestamp"
    is_time: ClassVar[bool] = True
    word: ClassVar[str] = "a timestamp"

    def plain(self, kind: pa.DataType) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us", kind.tz)

    def cast(self, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        return column.cast(kind, safe=False)  # Spark has no nanoseconds

    def values(self, column: pa.ChunkedArray) -> list[object]:
        return list(column.cast(self.plain(column.type)).cast("int64").to_pylist())

    def text_value(self, text: str) -> object:
        return _micros(text)

    def json_below(self, value: int, kind: pa.DataType) -> str | None:
        return _moment_json(value * 1_000 // PER_SECOND[kind.unit], kind)

    def json_above(self, value: int, kind: pa.DataType) -> str | None:
        return _moment_json(-(-value * 1_000 // PER_SECOND[kind.unit]), kind)

    def log_bounds(self, least: Any, greatest: Any) -> tuple[Any, Any]:
        low, high = (datetime.fromisoformat(at) if isinstance(at, str) else at for at in (least, greatest))
        return low, high + _LOG_ROUNDING

    def position_scale(self, kind: pa.DataType) -> Scale | None:
        return Scale(1, PER_SECOND[kind.unit]) if self.is_kept_as(kind) else None

    def literal(self, position: int) -> str:
        text = moment_text(position * 1_000, separator=" ", timespec="seconds")
        if text is not None:
            return f"{self.name.upper()} '{text}{self.zone}'"
        seconds = f"timestamp_seconds({position})"
        return seconds if self.zone else f"cast({seconds} as {self.name})"

    def sql_position(self, name: str) -> str:
        return f"unix_seconds(cast({name} as timestamp))"


@dataclass(frozen=True, slots=True)
class Date(PositionType):
    arrow: ClassVar[str] = "date32"
    is_time: ClassVar[bool] = True
    same_in_paths: ClassVar[bool] = True
    word: ClassVar[str] = "a date"

    def text_value(self, text: str) -> object:
        return _micros(text) // (DAY * MICROS)

    def json_below(self, value: int, kind: pa.DataType) -> str | None:
        text = day_text(value)
        return None if text is None else json.dumps(text)

    def log_bounds(self, least: Any, greatest: Any) -> tuple[Any, Any]:
        low, high = (date.fromisoformat(day) if isinstance(day, str) else day for day in (least, greatest))
        return low, high

    def position_scale(self, kind: pa.DataType) -> Scale | None:
        return Scale(DAY, 1) if self.is_kept_as(kind) else None

    def literal(self, position: int) -> str:
        days = -(-position // DAY)
        text = day_text(days)
        return f"date_from_unix_date({days})" if text is None else f"DATE '{text}'"

    def sql_position(self, name: str) -> str:
        return f"unix_date({name}) * 86400L"


@dataclass(frozen=True, slots=True)
class WholeNumber(PositionType):
    bits: int = 64

    arrow: ClassVar[str] = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
    same_in_paths: ClassVar[bool] = True
    word: ClassVar[str] = "an integer"

    def widens_to(self, wide: ColumnType) -> bool:
        return isinstance(wide, WholeNumber) and self.bits < wide.bits

    def common(self, kind: pa.DataType, other: pa.DataType) -> pa.DataType:
        import pyarrow as pa

        return pa.int64()

    def text_value(self, text: str) -> object:
        return int(text)

    def json_below(self, value: int, kind: pa.DataType) -> str:
        return str(value)

    def log_bounds(self, least: Any, greatest: Any) -> tuple[Any, Any]:
        return least, greatest

    def position_scale(self, kind: pa.DataType) -> Scale | None:
        return Scale(1, 1) if self.is_kept_as(kind) else None

    def literal(self, position: int) -> str:
        # a bare -9223372036854775808 would be read as minus a number that is too large
        return str(position) if position > MIN_POSITION else "(-9223372036854775807 - 1)"

    def sql_position(self, name: str) -> str:
        return f"cast({name} as bigint)"

    def text_position(self, text: str | int) -> int | None:
        try:
            return int(text)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class FloatingPoint(ColumnType):
    bits: int = 64

    arrow: ClassVar[str] = "halffloat float double"
    may_be_nan: ClassVar[bool] = True

    def widens_to(self, wide: ColumnType) -> bool:
        return isinstance(wide, FloatingPoint) and self.bits < wide.bits

    def sql_compared(self, expression: str) -> str:
        """By 12 digits; adding zero makes -0.0 what it equals."""
        return f"format_string('%.11e', cast({expression} as double) + 0.0D)"

    def common(self, kind: pa.DataType, other: pa.DataType) -> pa.DataType:
        import pyarrow as pa

        return pa.float64()

    def text_value(self, text: str) -> object:
        return float(text)

    def footer_value(self, raw: object, kind: pa.DataType) -> object:
        return raw if isinstance(raw, float) and not math.isnan(raw) else None

    def json_below(self, value: float, kind: pa.DataType) -> str | None:
        return repr(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class DecimalNumber(ColumnType):
    precision: int = 10
    scale: int = 0

    arrow: ClassVar[str] = "decimal32 decimal64 decimal128 decimal256"

    def named(self, name: str) -> ColumnType | None:
        match = _DECIMAL.fullmatch(name)
        if match is None:
            return None
        return self if match[1] is None else DecimalNumber(name, precision=int(match[1]), scale=int(match[2]))

    def widens_to(self, wide: ColumnType) -> bool:
        if not isinstance(wide, DecimalNumber):
            return False
        return wide.scale >= self.scale and wide.precision - wide.scale >= self.precision - self.scale

    def common(self, kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        import pyarrow as pa

        return pa.decimal128(max(kind.precision, other.precision), kind.scale) if kind.scale == other.scale else None

    def text_value(self, text: str) -> object:
        try:
            return Decimal(text)
        except InvalidOperation as error:
            raise ValueError(f"{text!r} is no number") from error

    def footer_value(self, raw: object, kind: pa.DataType) -> object:
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return Decimal(unscaled).scaleb(-kind.scale, _DECIMALS) if isinstance(unscaled, int) else None

    def json_below(self, value: Decimal, kind: pa.DataType) -> str:
        return format(value, "f")

    def log_bounds(self, least: Any, greatest: Any) -> tuple[Any, Any]:
        return Decimal(least), Decimal(greatest)


@dataclass(frozen=True, slots=True)
class Text(ColumnType):
    arrow: ClassVar[str] = "string large_string string_view"
    same_in_paths: ClassVar[bool] = True

    def plain(self, kind: pa.DataType) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def footer_value(self, raw: object, kind: pa.DataType) -> object:
        try:
            return raw.decode() if isinstance(raw, bytes) else None
        except UnicodeDecodeError:
            return None

    def json_below(self, value: str, kind: pa.DataType) -> str:
        return json.dumps(value[:STRING_LENGTH])

    def json_above(self, value: str, kind: pa.DataType) -> str | None:
        if len(value) <= STRING_LENGTH:
            return json.dumps(value)
        kept = value[:STRING_LENGTH]
        while kept:
            last = ord(kept[-1])
            if last < 0x10FFFF:
                # Surrogates are no characters: the next one after U+D7FF is U+E000.
                return json.dumps(kept[:-1] + chr(0xE000 if last == 0xD7FF else last + 1))
            kept = kept[:-1]
        return None

    def log_bounds(self, least: Any, greatest: Any) -> tuple[Any, Any]:
        return least, greatest


@dataclass(frozen=True, slots=True)
class Binary(ColumnType):
    arrow: ClassVar[str] = "binary large_binary binary_view fixed_size_binary"

    def plain(self, kind: pa.DataType) -> pa.DataType:
        import pyarrow as pa

        return pa.binary()

    def text_value(self, text: str) -> object:
        raise ValueError(f"bytes are spelled in several ways: {text!r}")


@dataclass(frozen=True, slots=True)
class Boolean(ColumnType):
    arrow: ClassVar[str] = "bool"

    def text_value(self, text: str) -> object:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() == "true"

    def footer_value(self, raw: object, kind: pa.DataType) -> object:
        return raw if isinstance(raw, bool) else None

    def json_below(self, value: bool, kind: pa.DataType) -> str:
        return json.dumps(value)

    def log_bounds(self, least: Any, greatest: Any) -> tuple[Any, Any]:
        return least, greatest


TIMESTAMP = Timestamp("timestamp")
LONG = WholeNumber("long")
COLUMN_TYPES: tuple[ColumnType, ...] = (
    TIMESTAMP,
    Timestamp("timestamp_ntz", feature="timestampNtz", zone=""),
    Date("date"),
    LONG,
    WholeNumber("integer", bits=32),
    WholeNumber("short", bits=16),
    WholeNumber("byte", bits=8),
    FloatingPoint("double"),
    FloatingPoint("float", bits=32),
    DecimalNumber("decimal"),
    Text("string"),
    Binary("binary"),
    Boolean("boolean"),
)
_BY_ARROW = {word: kind for kind in reversed(COLUMN_TYPES) for word in kind.arrow.split()}


def column_type(name: object) -> ColumnType | None:
    """The type that a schema means; None when it is made of others, or not one that we know."""
    if not isinstance(name, str):
        return None
    return next((known for kind in COLUMN_TYPES if (known := kind.named(name)) is not None), None)


def arrow_type(kind: pa.DataType) -> ColumnType | None:
    """The type that Arrow means, the first in the list of those that are kept alike; None as above."""
    return _BY_ARROW.get(_word(kind))


def cast_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in a plain or common type; an error when a value does not fit."""
    known = arrow_type(kind)
    return column.cast(kind) if known is None else known.cast(column, kind)


def _micros(text: str) -> int:
    micros = micros_of_text(text)
    if micros is None:
        raise ValueError(f"{text!r} is no moment")
    return micros


def _word(kind: pa.DataType) -> str:
    match = _WORD.match(str(kind))
    return "" if match is None else match[0]


def _moment_json(millis: int, kind: pa.DataType) -> str | None:
    text = moment_text(millis, separator="T", timespec="milliseconds")
    return None if text is None else json.dumps(text if kind.tz is None else f"{text}Z")
