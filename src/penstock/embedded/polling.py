"""How long do we wait for something to become true?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_PAUSE_SECONDS = 0.005


def poll(check: Callable[[], Result], seconds: float) -> Result:
    """The first result of `check` that is not None, or None when the time is over."""
    deadline = time.monotonic() + seconds
    while (result := check()) is None and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return result
