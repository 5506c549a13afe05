"""Which way of refreshing is cheaper: the keys that changed, or everything?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Strategy = Literal["no_data", "append", "affected_keys", "full", "reinitialize"]
SMALL_BYTES = 32 * 2**20
"""Below, a table is written so quickly that nothing is to be weighed up."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a refresh is done, and why."""

    strategy: Strategy
    code: str
    reason: str

    @property
    def words(self) -> str:
        return f"{self.code}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a refresh by keys would touch, as the logs tell."""

    keys: int
    """That changed."""
    all_keys: int
    """At most, in the table."""
    read_bytes: int
    """Of the inputs, for these keys."""
    input_bytes: int
    """Of the inputs, for all keys."""
    touched_bytes: int
    """Of the table's files that may hold such a key: they are read and written again."""
    table_bytes: int


def by_keys_or_full(sizes: Sizes, threshold: float, *, forced: bool = False) -> Choice:
    """`forced`: the author wants it by keys."""
    if not sizes.keys:
        return Choice("no_data", "NO_KEY_AFFECTED", "the rows that changed belong to no key")
    share = sizes.keys / max(sizes.all_keys, 1)
    counted = f"{sizes.keys} of {sizes.all_keys} keys"
    if forced:
        return Choice("affected_keys", "FORCED", f"{counted} changed, and refresh_strategy asks for it")
    if sizes.all_keys and share > threshold:
        return Choice("full", "OVER_THRESHOLD", f"{counted} changed, more than cardinality_threshold {threshold:g}")
    by_keys = sizes.read_bytes + 2 * sizes.touched_bytes
    everything = sizes.input_bytes + sizes.table_bytes
    if sizes.table_bytes > SMALL_BYTES and by_keys > everything:
        said = f"{counted} changed, in files of {by_keys} bytes to read and write; all of it takes {everything}"
        return Choice("full", "SCATTERED", said)
    return Choice("affected_keys", "FEW_KEYS", f"{counted} changed")
