"""Tables as other programs write them with delta-rs, and the rows by which their snapshots differ."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from penstock.engine.refresh.changed_rows import ChangedRows, FewRows, Unchanged, changed_rows
from penstock.engine.refresh.reinitialize import Reinitialize
from penstock.engine.rows.multisets import WEIGHT

FEED = {"delta.enableChangeDataFeed": "true"}
Bag = Counter[object]
Act = Callable[[Path], None]


def head(root: Path) -> DeltaTable:
    return DeltaTable(str(root))


def spelled(value: object) -> object:
    """Numbers with a fraction by their bits."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple((key, spelled(inner)) for key, inner in value.items())
    return tuple(spelled(inner) for inner in value) if isinstance(value, list | tuple) else value


def bag(root: Path, version: int, columns: list[str]) -> Bag:
    """A snapshot as delta-rs reads it; a column that it has not is NULL."""
    rows = pa.table(DeltaTable(str(root), version=version).scan()).to_pylist()
    return Counter(spelled([row.get(name) for name in columns]) for row in rows)


def difference(root: Path, after: int, upto: int, columns: list[str]) -> Bag:
    now = bag(root, upto, columns)
    now.subtract(bag(root, after, columns))
    return non_zero(now)


def non_zero(counts: Bag) -> Bag:
    return Counter({row: count for row, count in counts.items() if count})


def changes(root: Path, after: int = 0, upto: int | None = None, **asked: object) -> ChangedRows:
    table = head(root)
    version = table.version() if upto is None else upto
    return changed_rows(str(root), str(table.metadata().id), after, version, **asked)  # type: ignore[arg-type]


def told(answer: ChangedRows) -> Bag:
    if isinstance(answer, Unchanged):
        return Counter()
    assert isinstance(answer, FewRows), answer
    weights = answer.rows.column(WEIGHT).to_pylist()
    rows = answer.rows.drop_columns([WEIGHT]).to_pylist()
    assert 0 not in weights
    assert answer.inserts_only == (min(weights) > 0)
    counted = Counter({spelled(list(row.values())): weight for row, weight in zip(rows, weights, strict=True)})
    assert len(counted) == len(weights), "one of each"
    return counted


def check(root: Path, after: int = 0, upto: int | None = None, columns: list[str] | None = None) -> ChangedRows:
    answer = changes(root, after, upto, columns=columns)
    version = head(root).version() if upto is None else upto
    names = [field.name for field in DeltaTable(str(root), version=version).schema().fields]
    expected = difference(root, after, version, [name for name in names if columns is None or name in columns])
    assert told(answer) == expected
    return answer


def rows(numbers: range | list[int], text: str = "a") -> pa.Table:
    return pa.table({"p": [n % 3 for n in numbers], "n": pa.array(numbers, pa.int64()), "v": [text for _ in numbers]})


def begun(place: Path, *, feed: bool, parted: bool) -> Path:
    """Forty rows in two files, or in six."""
    partition = ["p"] if parted else None
    write_deltalake(str(place), rows(range(20)), configuration=FEED if feed else {}, partition_by=partition)
    write_deltalake(str(place), rows(range(20, 40)), mode="append")
    return place


def append(root: Path) -> None:
    write_deltalake(str(root), rows([7, 50, 50, 51]), mode="append")


def delete(root: Path) -> None:
    head(root).delete("n = 3 or n > 30")


def delete_all(root: Path) -> None:
    head(root).delete()


def update(root: Path) -> None:
    head(root).update({"v": "'new'"}, predicate="n = 3 or n = 22")


def update_to_the_same(root: Path) -> None:
    head(root).update({"v": "v"}, predicate="n > 10")


def move(root: Path) -> None:
    head(root).update({"p": "p + 1"}, predicate="n > 35")


def merge(root: Path) -> None:
    joined = head(root).merge(rows([5, 60], "m"), "s.n = t.n", source_alias="s", target_alias="t")
    joined.when_matched_update_all().when_not_matched_insert_all().execute()


def merge_that_deletes(root: Path) -> None:
    joined = head(root).merge(rows(range(15)), "s.n = t.n", source_alias="s", target_alias="t")
    joined.when_matched_delete().execute()


def overwrite(root: Path) -> None:
    write_deltalake(str(root), rows([*range(10), 25, 60]), mode="overwrite")


def replace_where(root: Path) -> None:
    write_deltalake(str(root), rows([0, 30, 33], "r"), mode="overwrite", predicate="p = 0")


def compact(root: Path) -> None:
    head(root).optimize.compact()


def z_order(root: Path) -> None:
    head(root).optimize.z_order(["v"])


def restore(root: Path) -> None:
    head(root).restore(0)


def nothing_new(root: Path) -> None:
    write_deltalake(str(root), rows([]), mode="append")


def switch_feed(root: Path) -> None:
    now = head(root).metadata().configuration.get("delta.enableChangeDataFeed", "false")
    head(root).alter.set_table_properties({"delta.enableChangeDataFeed": "false" if now == "true" else "true"})


ACTS = [
    append, delete, delete_all, update, update_to_the_same, move, merge, merge_that_deletes, overwrite, replace_where,
    compact, z_order, restore, nothing_new, switch_feed,
]  # fmt: skip


def back(root: Path) -> None:
    head(root).update({"v": "'a'"})


def there_and_back(root: Path) -> None:
    update(root)
    back(root)


def come_and_go(root: Path) -> None:
    write_deltalake(str(root), rows([50, 51]), mode="append")
    compact(root)
    head(root).delete("n >= 50")


def commit(root: Path, version: int, action: str) -> list[dict[str, Any]]:
    lines = (root / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [found[action] for line in lines if action in (found := json.loads(line))]


def expired(answer: ChangedRows, what: str) -> None:
    assert isinstance(answer, Reinitialize)
    assert answer.code == "HISTORY_EXPIRED"
    assert what in answer.reason
