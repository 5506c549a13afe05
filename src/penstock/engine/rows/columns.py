"""Do the columns of a query fit the table they go to?"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from penstock.engine.values.column_types import column_type
from penstock.engine.values.predicate import quoted
from penstock.engine.values.schemas import shown, unknown_type
from penstock.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")


def target_schema(new: StructType, table: StructType | None, add_columns: bool) -> StructType:
    """The table's columns, then those that the query adds; a QueryError when they cannot be one table."""
    from pyspark.sql.types import StructField, StructType

    _check(new)
    if table is None:
        return StructType([StructField(field.name, field.dataType, True) for field in new.fields])
    known = {field.name.casefold() for field in table.fields}
    added = [field for field in new.fields if field.name.casefold() not in known]
    if added and not add_columns:
        raise QueryError(
            f"the query has new columns: {', '.join(field.name for field in added)}",
            hint="on_schema_change: add_columns takes them in",
        )
    return StructType([*table.fields, *(StructField(field.name, field.dataType, True) for field in added)])


def fits(table: StructType, rows: StructType) -> bool:
    """Whether files of `rows` can be added to the table as they are: its columns first, of the same types."""
    ahead = rows.fields[: len(table.fields)]
    return len(ahead) == len(table.fields) and all(
        column.name == other.name and _same(column.dataType, other.dataType)
        for column, other in zip(table.fields, ahead, strict=True)
    )


def fitted(new: StructType, target: StructType) -> list[str]:
    """SQL of the target's columns over the query's: renamed to the table's spelling, widened, NULL where absent."""
    columns = {field.name.casefold(): field for field in new.fields}
    selected: list[str] = []
    for field in target.fields:
        name, spelled = quoted(field.name), field.dataType.simpleString()
        column = columns.get(field.name.casefold())
        if column is None:
            selected.append(f"cast(null as {spelled}) as {name}")
        elif _same(column.dataType, field.dataType):
            selected.append(f"{quoted(column.name)} as {name}")
        elif _widens(column.dataType, field.dataType):
            selected.append(f"cast({quoted(column.name)} as {spelled}) as {name}")
        else:
            raise QueryError(
                f"column {field.name} is {column.dataType.simpleString()} in the query and {spelled} in the table",
                hint="cast it in the query, or rebuild the table",
            )
    return selected


def unchanged(selected: list[str]) -> bool:
    """Whether `fitted` only named the columns that are there already."""
    return not any(text.startswith("cast(") for text in selected)


def _check(new: StructType) -> None:
    twice = [name for name, count in Counter(field.name.casefold() for field in new.fields).items() if count > 1]
    if twice:
        raise QueryError(f"the query has several columns named {twice[0]}", hint="give each column its own alias")
    for field in new.fields:
        if _FORBIDDEN.search(field.name):
            raise QueryError(
                f"a Delta column cannot be named {field.name!r}", hint="give it an alias without blanks or ,;{}()="
            )
        odd = unknown_type(field.name, field.jsonValue()["type"])
        if odd is not None:
            raise QueryError(
                f"column {odd[0]} is of type {shown(odd[1])}, which cannot be stored",
                hint=f"write cast(… as string) as {field.name}",
            )


def _same(kind: DataType, other: DataType) -> bool:
    return kind.simpleString() == other.simpleString()


def _widens(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    known, other = column_type(narrow.jsonValue()), column_type(wide.jsonValue())
    return known is not None and other is not None and known.widens_to(other)
