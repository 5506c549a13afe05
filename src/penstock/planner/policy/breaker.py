"""When is a whole model at fault, and not one of its chunks?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.values.intervals import Interval

MOST_ALIKE = 10
"""So many chunks that were planned one by one and failed alike, with no success between, speak for all."""
FIRST_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 600.0
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
"""What Spark calls the error; the words around it quote whatever the rows hold, and name stages and hosts."""
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'")
_NUMBERED = re.compile(r"(?:\S*\d\S*|NULL\b)(?:\s+\S*\d\S*)*")
"""Numbers, and the names of files, hosts and requests; several in a row are one, as times and ranges are."""
Chunks = tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A task that was given up: by the fault of its query or data, or after all its tries."""

    task: int
    chunks: Chunks
    error: str
    split_from: int | None = None
    """The batch that it is a part of."""


def signature(error: str) -> str:
    """What two failures have in common that are alike: everything but values, numbers and names that hold numbers."""
    named = _CONDITION.search(error)
    first = error.partition("\n")[0]  # below it stands what to do, and how often it was tried
    return named[0] if named else _NUMBERED.sub("#", _QUOTED.sub("''", first)).strip()


def probes(chunks: Sequence[Interval]) -> Chunks:
    """The ends and the middle: rows that are bad for a while hardly reach all three."""
    ordered = sorted(chunks)
    return tuple(dict.fromkeys((ordered[0], ordered[-1], ordered[len(ordered) // 2])))


def pieces(chunks: Chunks, *, probing: bool) -> tuple[Chunks, ...]:
    """What takes the place of a batch that failed, in the order in which it is done.

    `probing`: single chunks first, which tell a bad query from a bad chunk; else two halves.
    """
    if not probing:
        middle = len(chunks) // 2
        return chunks[:middle], chunks[middle:]
    alone = probes(chunks)
    left = [chunk for chunk in chunks if chunk not in alone]
    middle = (len(left) + 1) // 2
    rest = (tuple(left[:middle]), tuple(left[middle:]))
    return (*((chunk,) for chunk in alone), *(part for part in rest if part))


def is_hopeless(last: Failed, before: Sequence[Failed], *, divisible: bool) -> bool:
    """Whether every chunk would fail like `last`; `before` are the failures since the model last succeeded.

    Of a batch that failed, its ends and its middle failed alone in the same way; or many chunks did that were never
    part of a batch; or the error itself says that no chunk can do better.
    """
    if not divisible:
        return True
    mark = signature(last.error)
    alike = [failure for failure in before if signature(failure.error) == mark and failure.task != last.task]
    alone = [failure for failure in (*alike, last) if len(failure.chunks) == 1]
    if last.split_from is None:
        return len({failure.chunks for failure in alone if failure.split_from is None}) >= MOST_ALIKE
    batch = next((failure for failure in alike if failure.task == last.split_from and failure.split_from is None), None)
    tried = {failure.chunks[0] for failure in alone if failure.split_from == last.split_from}
    return batch is not None and tried.issuperset(probes(batch.chunks))


def tries_again(since: datetime, times: int, now: datetime, *, moved: bool, passing: bool) -> bool:
    """Whether a suspended model is tried again; the more often in vain, the later."""
    waits = times if passing and not moved else times - 1
    pause = 0.0 if waits < 1 else min(FIRST_PAUSE_SECONDS * 2.0 ** min(waits - 1, 10), LONGEST_PAUSE_SECONDS)
    return (moved or passing) and now - since >= timedelta(seconds=pause)


def suspended_words(name: str, error: str, *, passing: bool) -> str:
    """Said wherever the model is asked about."""
    pause = "a pause is over, " if passing else ""
    until = f"until {pause}its query or an input changes, or"
    return f"suspended {until} penstock resume {name}: every interval fails with the same error: {error}"
