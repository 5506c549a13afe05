"""Which rows of a file does a deletion vector hide, as the Delta protocol stores it?

It is a roaring bitmap of row numbers: in the log itself, or in a file of its own. It is read by its own descriptor,
since delta-rs reads those of all files of a snapshot.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID

from penstock.engine.log.handle import StoreFault
from penstock.engine.log.storage import Storage, place

if TYPE_CHECKING:
    import pyarrow as pa

_PORTABLE = 1681511377
_PLAIN, _WITH_RUNS = 12346, 12347
_FEW_WITHOUT_OFFSETS = 4
_MOST_SINGLE = 4096
"""A container with more numbers is kept as one bit per number."""
_BITMAP_BYTES = 8192
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_UUID_DIGITS = 20


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """What the log says of a vector; two that are equal hide the same rows."""

    kind: str
    """`i`: it is in the log itself; `u` and `p`: it is in a file, with a relative or an absolute path."""
    where: str
    offset: int
    size: int
    rows: int
    """How many rows it hides."""

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> DeletionVector | None:
        """That of an action of the log; None when it has none."""
        told = action.get("deletionVector")
        if told is None:
            return None
        return cls(
            told["storageType"],
            told["pathOrInlineDv"],
            told.get("offset") or 0,
            told["sizeInBytes"],
            told["cardinality"],
        )

    @property
    def path(self) -> str:
        """Of its file, below the table's root or absolute."""
        if self.kind == "p":
            return unquote(self.where)
        folder, name = self.where[:-_UUID_DIGITS], self.where[-_UUID_DIGITS:]
        file = f"deletion_vector_{UUID(bytes=_decoded(name))}.bin"
        return f"{folder}/{file}" if folder else file


def hidden_rows(location: str, vector: DeletionVector, storage: Storage | None = None) -> pa.Array:
    """The numbers of the rows that it hides, in order. A FileNotFoundError when its file is gone."""
    try:
        return _numbers(_stored(location, vector, storage))
    except (struct.error, ValueError, KeyError) as error:
        raise StoreFault(location, f"the deletion vector {vector.where} cannot be read") from error


def _stored(location: str, vector: DeletionVector, storage: Storage | None) -> bytes:
    if vector.kind == "i":
        return _decoded(vector.where)[: vector.size]
    filesystem, inside = place(location, vector.path, storage)
    with filesystem.open_input_file(inside) as file:
        file.seek(vector.offset)
        (size,) = struct.unpack(">I", file.read(4))
        return bytes(file.read(size))


def _decoded(text: str) -> bytes:
    """Z85: five digits are four bytes."""
    numbers = []
    for at in range(0, len(text), 5):
        number = 0
        for digit in text[at : at + 5]:
            number = number * 85 + _VALUES[digit]
        numbers.append(number)
    return struct.pack(f">{len(numbers)}I", *numbers)


def _numbers(data: bytes) -> pa.Array:
    import pyarrow as pa

    magic, count = struct.unpack_from("<IQ", data)
    if magic != _PORTABLE:
        raise ValueError(f"{magic} is not the mark of a deletion vector")
    at, parts = 12, [pa.array([], pa.int64())]
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        containers, at = _containers(data, at + 4)
        parts += [_shifted(numbers, high << 32 | key << 16) for key, numbers in containers]
    return pa.concat_arrays(parts)


def _shifted(numbers: pa.Array, by: int) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(numbers.cast(pa.int64()), pa.scalar(by, pa.int64()))


def _containers(data: bytes, at: int) -> tuple[list[tuple[int, pa.Array]], int]:
    """The containers of a bitmap of 32 bits, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = data[at : at + (count + 7) // 8]
        at += len(flags)
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", data, at)
        flags = b""
        at += 4
    else:
        raise ValueError(f"{cookie} is not the mark of a bitmap")
    heads = list(struct.iter_unpack("<HH", data[at : at + 4 * count]))
    at += 4 * count
    if not flags or count >= _FEW_WITHOUT_OFFSETS:
        at += 4 * count
    containers = []
    for number, (key, fewer) in enumerate(heads):
        has_runs = bool(flags) and bool(flags[number // 8] >> number % 8 & 1)
        numbers, at = _runs(data, at) if has_runs else _container(data, at, fewer + 1)
        containers.append((key, numbers))
    return containers, at


def _container(data: bytes, at: int, count: int) -> tuple[pa.Array, int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if count > _MOST_SINGLE:
        buffer = pa.py_buffer(data[at : at + _BITMAP_BYTES])
        bits = pa.Array.from_buffers(pa.bool_(), 8 * _BITMAP_BYTES, [None, buffer])
        return pc.indices_nonzero(bits), at + _BITMAP_BYTES
    end = at + 2 * count
    return pa.Array.from_buffers(pa.uint16(), count, [None, pa.py_buffer(data[at:end])]), end


def _runs(data: bytes, at: int) -> tuple[pa.Array, int]:
    import pyarrow as pa

    (count,) = struct.unpack_from("<H", data, at)
    end = at + 2 + 4 * count

    def numbers() -> Iterator[int]:
        for start, more in struct.iter_unpack("<HH", data[at + 2 : end]):
            yield from range(start, start + more + 1)

    return pa.array(numbers(), pa.int64()), end
