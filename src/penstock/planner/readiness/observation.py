"""What does the planner see of one model and its inputs?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.values.intervals import NOTHING, Interval, IntervalSet
from penstock.values.models import Group, IntervalModel
from penstock.values.tasks import Lane


@dataclass(frozen=True, slots=True)
class Input:
    """One dependency as it stands: what of it can be read, and from where on it holds rows."""

    name: str
    kind: Literal["source", "interval", "lookup"]
    available: IntervalSet
    """A source: everything before its end less lag, once it has rows; an interval model: covered less stale, and all
    below the first chunk it will ever have; a lookup: everything once it is there."""
    first: int | None
    """The first row of a source, where an interval model begins; None for a lookup or when there is nothing yet."""
    why_empty: str = ""
    """Said when nothing is available: 'no rows yet', 'never observed', 'not built yet', the scan's error."""
    bytes_per_position: float = 0.0
    """An estimate that bounds batches; 0 when unknown."""
    lag: int = 0
    """What was taken off the end of a source already; only said, never subtracted again."""
    observed: bool = True
    """False: the source was never observed."""
    expired: int | None = None
    """Rows of a source below this position have left at the old end: what was made of them cannot be made again."""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision about one model depends on."""

    model: IntervalModel
    inputs: Mapping[str, Input]
    covered: IntervalSet = NOTHING
    stale: IntervalSet = NOTHING
    in_flight: IntervalSet = NOTHING
    failed: IntervalSet = NOTHING
    """Ranges whose task is dead or cancelled, until its hold ends."""
    cancelled: IntervalSet = NOTHING
    """Of these, what was cancelled."""
    paused: bool = False
    suspended: str | None = None
    """Why nothing of it is tried: every interval failed alike."""

    @property
    def starving(self) -> tuple[Group, ...]:
        """The inputs that it needs and none of which has anything: it is not late, it cannot begin."""
        needed = (group for group in self.model.dependencies if not any(member.optional for member in group))
        return tuple(group for group in needed if not any(self.inputs[member.model].available for member in group))

    @property
    def stopped(self) -> str | None:
        """Why nothing of it is planned, whatever is ready."""
        return "paused" if self.paused else self.suspended


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """One thing that was looked at for a chunk."""

    dependency: str
    rule: str
    value: str
    ok: bool
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now, in the planner's own words."""

    model: str
    reason: str
    lane: Lane | None = None
    chunk: Interval | None = None
    readiness_checks: tuple[ReadinessCheck, ...] = ()
    permanent: bool = False
    """Nothing will ever fill this unless a person acts."""
