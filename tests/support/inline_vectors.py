"""How does a table get a deletion vector without Spark, in its log or in a file?"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FEATURES = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "changeDataFeed"]}


def delete_by_vector(root: Path, added_by: int, version: int, rows: Iterable[int], *, stored: str = "i") -> None:
    """A commit that deletes rows, by their number in the only file that another commit added.

    The vector is stored in the log; with `u` or `p` in a file, which the log names by a relative or an absolute path.
    """
    lines = (root / "_delta_log" / f"{added_by:020d}.json").read_text().splitlines()
    (add,) = [action["add"] for line in lines if "add" in (action := json.loads(line))]
    hide_rows(root, add, version, rows, stored=stored)


def hide_rows(root: Path, add: dict[str, Any], version: int, rows: Iterable[int], *, stored: str = "i") -> None:
    """A commit that hides exactly these rows of a live file, as the action that added it describes it."""
    remove = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True, "extendedFileMetadata": True}
    remove |= {key: add[key] for key in ("partitionValues", "size", "deletionVector") if key in add}
    actions = [
        {"commitInfo": {"operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **_FEATURES}},
        {"remove": remove},
        {"add": {**add, "dataChange": True, "deletionVector": _vector(root, sorted(rows), stored)}},
    ]
    (root / "_delta_log" / f"{version:020d}.json").write_text("\n".join(json.dumps(action) for action in actions))


def _vector(root: Path, rows: list[int], kind: str) -> dict[str, object]:
    data = _bitmap(rows)
    told = {"storageType": kind, "sizeInBytes": len(data), "cardinality": len(rows)}
    if kind == "i":
        return {**told, "pathOrInlineDv": z85(data)}
    number = uuid4()
    folder = "ab" if kind == "u" else ""
    file = root / folder / f"deletion_vector_{number}.bin"
    file.parent.mkdir(exist_ok=True)
    before = b"\1" + b"another vector"
    file.write_bytes(before + struct.pack(">I", len(data)) + data + struct.pack(">I", crc32(data)))
    where = f"{folder}{z85(number.bytes)}" if kind == "u" else file.as_uri()
    return {**told, "pathOrInlineDv": where, "offset": len(before)}


def _bitmap(rows: list[int]) -> bytes:
    """A roaring bitmap with one container of plain numbers."""
    numbers = b"".join(struct.pack("<H", row) for row in rows)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + numbers
    return struct.pack("<IQI", 1681511377, 1, 0) + bitmap


def z85(data: bytes) -> str:
    text = ""
    whole = data + b"\0" * (-len(data) % 4)
    for at in range(0, len(whole), 4):
        value = int.from_bytes(whole[at : at + 4], "big")
        text += "".join(_DIGITS[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text
