"""How long does an attempt wait for a database that does not answer?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import BusyError, LeaseLostError, StateError

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0


def patiently(act: Callable[[], T], worth: Callable[[], bool]) -> T:
    """Repeat `act` while the database does not answer, as long as it is `worth` it.

    Whatever is done so must bear being done twice: the first answer may have been lost on its way.
    """
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return act()
        except (StateError, BusyError) as error:
            if not worth():
                raise LeaseLostError(f"the task was given up: {error.message}") from error
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
