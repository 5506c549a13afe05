"""How does a table get a deletion vector without Spark?"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FEATURE = ["deletionVectors"]


def delete_by_vector(root: Path, added_by: int, version: int, rows: Iterable[int]) -> None:
    """A commit that deletes rows, by their number in the only file that another commit added."""
    log = root / "_delta_log"
    lines = (log / f"{added_by:020d}.json").read_text().splitlines()
    (add,) = [action["add"] for line in lines if "add" in (action := json.loads(line))]
    remove = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}
    if "deletionVector" in add:
        remove["deletionVector"] = add["deletionVector"]
    features = {"readerFeatures": _FEATURE, "writerFeatures": _FEATURE}
    actions = [
        {"commitInfo": {"operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": remove},
        {"add": {**add, "dataChange": True, "deletionVector": _vector(sorted(rows))}},
    ]
    (log / f"{version:020d}.json").write_text("\n".join(json.dumps(action) for action in actions))


def _vector(rows: list[int]) -> dict[str, object]:
    """A roaring bitmap with one container of plain numbers."""
    numbers = b"".join(struct.pack("<H", row) for row in rows)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + numbers
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    return {"storageType": "i", "pathOrInlineDv": _z85(data), "sizeInBytes": len(data), "cardinality": len(rows)}


def _z85(data: bytes) -> str:
    text = ""
    whole = data + b"\0" * (-len(data) % 4)
    for at in range(0, len(whole), 4):
        value = int.from_bytes(whole[at : at + 4], "big")
        text += "".join(_DIGITS[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text
