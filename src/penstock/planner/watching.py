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
QUIET_SECONDS = 1.5
"""Changes that come a second apart belong together: a log is asked for its next commit that often."""


def glance_seconds(rested_seconds: float, scan_seconds: float) -> float:
    """The longer a source rests the seldomer, down to its own period."""
    return min(max(GLANCE_SECONDS, rested_seconds / RESTING), max(scan_seconds, GLANCE_SECONDS))


def next_slice(commits: int, seconds: float) -> int:
    """How many commits to walk at once, after so many took so long: a slice is a few seconds of work."""
    if seconds > _SLOW_SECONDS:
        return max(commits // 2, _SMALLEST_SLICE)
    return min(commits * 2, _LARGEST_SLICE) if seconds < _QUICK_SECONDS else commits


def gathered_at(first: datetime, last: datetime, most_seconds: float) -> datetime:
    """When what changed is computed again: once it has been quiet for a moment, or has waited for long enough."""
    return min(last + timedelta(seconds=QUIET_SECONDS), first + timedelta(seconds=most_seconds))
