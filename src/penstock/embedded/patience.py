"""How long do we wait for something to become true?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

_PAUSE_SECONDS = 0.005


def poll(look: Callable[[], Found], seconds: float) -> Found:
    """The first result of `look` that is not None, or None when the time is over."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return found
