"""An engine in which one object is the session and every part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class WholeEngine:
    """So that a test replaces or watches any method in one place."""

    on_death: Callable[[], None] = staticmethod(lambda: None)
    alive = True
    started = False
    keeps_classes = False
    jobs = 0
    begun = 0
    """How often it was said that Spark will be needed."""

    @property
    def session(self) -> Self:
        return self

    @property
    def attempts(self) -> Self:
        return self

    @property
    def scanner(self) -> Self:
        return self

    @property
    def questions(self) -> Self:
        return self

    def begin(self) -> None:
        self.begun += 1

    def stop(self, *, quick: bool = False) -> None:
        """There is nothing to stop."""
