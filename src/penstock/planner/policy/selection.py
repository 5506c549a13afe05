"""Which models may this worker claim now?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from penstock.values.models import Model


@dataclass(frozen=True, slots=True)
class Pattern:
    """Models by name, and how many of their tasks may run at a time in one worker; None: no limit of its own."""

    pattern: str
    concurrency: int | None = None

    def matches(self, name: str) -> bool:
        return fnmatchcase(name, self.pattern)


@dataclass(frozen=True, slots=True)
class Selection:
    patterns: tuple[Pattern, ...]
    tags: frozenset[str]
    """Empty: whatever the tags are."""
    concurrency: int

    def matches(self, model: Model) -> bool:
        tagged = not self.tags or not self.tags.isdisjoint(model.tags)
        return tagged and any(pattern.matches(model.name) for pattern in self.patterns)

    def claimable(self, models: Iterable[Model], running: Sequence[str]) -> frozenset[str]:
        """Names of models of which one more task may start beside the `running` ones, named in the order they began."""
        if len(running) >= self.concurrency:
            return frozenset()
        free = [pattern for pattern, places in self._places(running) if places is None or places > 0]
        chosen = (model.name for model in models if self.matches(model))
        return frozenset(name for name in chosen if any(pattern.matches(name) for pattern in free))

    def _places(self, running: Iterable[str]) -> list[tuple[Pattern, int | None]]:
        """What each pattern has left: a running task takes a place of the first pattern that has one for it."""
        left = [pattern.concurrency for pattern in self.patterns]
        for name in running:
            for at, pattern in enumerate(self.patterns):
                places = left[at]
                if pattern.matches(name) and (places is None or places > 0):
                    left[at] = places - 1 if places is not None else None
                    break
        return list(zip(self.patterns, left, strict=True))
