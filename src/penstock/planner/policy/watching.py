"""How often is a source polled, how many commits are read at once, and when are its changes complete?"""

from __future__ import annotations

from datetime import datetime, timedelta

POLL_SECONDS = 1.0
"""A source that has just changed is polled this often."""
IDLE_DIVISOR = 30.0
"""The period of polling is the time since the last commit divided by this."""
FIRST_SLICE = 64
"""Commits, until it shows how long they take."""
_LARGEST_SLICE = 1024
_SMALLEST_SLICE = 4
_QUICK_SECONDS, _SLOW_SECONDS = 1.0, 4.0
SETTLING_SECONDS = 0.5
"""One writer's commits may come in quick succession: what changes after a calm is repaired this soon."""
QUIET_SECONDS = 3.0
"""What goes on changing is gathered until it stops for so long."""


def poll_seconds(idle_seconds: float, scan_seconds: float) -> float:
    """The longer a source has had no commit, the longer the period, up to that of its own scans."""
    return min(max(POLL_SECONDS, idle_seconds / IDLE_DIVISOR), max(scan_seconds, POLL_SECONDS))


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
