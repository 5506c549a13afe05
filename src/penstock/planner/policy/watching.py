"""How often is a source glanced at, how much of its log is one slice, and when have its changes been gathered?"""

from __future__ import annotations

from datetime import datetime, timedelta

GLANCE_SECONDS = 1.0
"""A source that has just changed is glanced at this often."""
RESTING = 30.0
"""A source that has rested for so many periods is glanced at half as often as one that rested half as long."""
FIRST_SLICE = 64
"""Commits, until it shows how long they take."""
_LARGEST_SLICE = 1024
_SMALLEST_SLICE = 4
_QUICK_SECONDS, _SLOW_SECONDS = 1.0, 4.0
SETTLING_SECONDS = 0.5
"""One writer's commits may come in quick succession: what changes after a calm is repaired this soon."""
QUIET_SECONDS = 3.0
"""What goes on changing is gathered until it stops for so long."""


def glance_seconds(rested_seconds: float, scan_seconds: float) -> float:
    """The longer a source rests the seldomer, down to its own period."""
    return min(max(GLANCE_SECONDS, rested_seconds / RESTING), max(scan_seconds, GLANCE_SECONDS))


def next_slice(commits: int, seconds: float) -> int:
    """How many commits to walk at once, after so many took so long: a slice is a few seconds of work."""
    if seconds > _SLOW_SECONDS:
        return max(commits // 2, _SMALLEST_SLICE)
    return min(commits * 2, _LARGEST_SLICE) if seconds < _QUICK_SECONDS else commits


def gathered_at(first: datetime, last: datetime, repaired: datetime | None, most_seconds: float) -> datetime:
    """When what changed, at first and at last, is computed again: at once after a calm, else when it has become quiet.

    What was `repaired` just before is likely to go on changing. Nothing waits longer than `most_seconds`.
    """
    calm = repaired is None or first - repaired >= timedelta(seconds=QUIET_SECONDS)
    quiet = timedelta(seconds=SETTLING_SECONDS if calm else QUIET_SECONDS)
    return min(last + quiet, first + timedelta(seconds=most_seconds))
