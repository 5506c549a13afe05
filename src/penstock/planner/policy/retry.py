"""What happens to a task after an attempt without a result?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from penstock.errors import ErrorClass

MOST_CONFLICTS = 10
LOSSES_RETRIED_AT_ONCE = 2
MOST_PARTS_ALIKE = 16
"""So many failures of a batch and its parts isolate a few bad chunks; more of them are not worth isolating now."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0
FIRST_HOLD_SECONDS = 30.0
LONGEST_HOLD_SECONDS = 600.0
LONGEST_QUARANTINE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt ended, as far as the next step depends on it."""

    error_class: ErrorClass
    worker: str
    came_back: bool = False
    """The worker was heard of again: it had only lost its connection, and the task did it no harm."""


@dataclass(frozen=True, slots=True)
class Retry:
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Split:
    """One bad chunk must not take its neighbours down: several parts instead of the batch."""


@dataclass(frozen=True, slots=True)
class Die:
    why: str
    quarantined: bool = False
    """It may have killed its workers: each try may cost two more, so the pauses grow longer than others."""


Next = Retry | Split | Die


@dataclass(frozen=True, slots=True)
class SplitFailures:
    """How often storage or Spark failed in the same way for a batch that was split, and for all its parts with it."""

    batch: int = 0
    all: int = 0


_NO_SPLIT_FAILURES = SplitFailures()


def next_step(
    endings: Sequence[Ending],
    chunks: int,
    max_attempts: int,
    random: Random,
    split_failures: SplitFailures = _NO_SPLIT_FAILURES,
) -> Next:
    """`endings` are all attempts of the task so far, the last one included."""
    last = endings[-1]
    spent = [ending for ending in endings if ending.error_class in ("engine", "lost") and not ending.came_back]
    match last.error_class:
        case "user":
            return Split() if chunks > 1 else Die("the query or its data is at fault: trying again cannot help")
        case "conflict":
            conflicts = sum(ending.error_class == "conflict" for ending in endings)
            if conflicts >= MOST_CONFLICTS:
                return Die(f"it conflicted with other commits {conflicts} times")
            return Retry(_pause(conflicts, random))
        case "lost":
            return _after_loss(endings, len(spent), max_attempts, random)
        case "engine":
            if len(spent) + split_failures.batch < max_attempts:
                return Retry(_pause(len(spent), random))
            isolated = chunks > 1 and split_failures.all < MOST_PARTS_ALIKE
            return Split() if isolated else Die(f"it failed {len(spent) + split_failures.batch} times")


def hold_seconds(deaths: int, *, quarantined: bool = False) -> float:
    """How long a scope that died so often in a row is left alone; then the cause may be gone."""
    longest = LONGEST_QUARANTINE_SECONDS if quarantined else LONGEST_HOLD_SECONDS
    return min(FIRST_HOLD_SECONDS * 2.0 ** min(deaths - 1, 10), longest)


def _after_loss(endings: Sequence[Ending], spent: int, max_attempts: int, random: Random) -> Next:
    before = endings[-2] if len(endings) > 1 else None
    if before and before.error_class == "lost" and not before.came_back and before.worker != endings[-1].worker:
        return Die("two workers in a row were lost on it", quarantined=True)
    if spent >= max_attempts:
        return Die(f"its worker was lost; {spent} attempts are used up")
    losses = sum(ending.error_class == "lost" for ending in endings)
    return Retry(0.0 if losses <= LOSSES_RETRIED_AT_ONCE else _pause(losses, random))


def _pause(tries: int, random: Random) -> float:
    """Twice as long each time; the jitter keeps many tasks from coming back together."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** (tries - 1), LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0)
