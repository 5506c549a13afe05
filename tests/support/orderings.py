"""In which orders can the steps of several actors come?"""

from __future__ import annotations

from collections.abc import Iterator


def orders(*lengths: int) -> Iterator[tuple[int, ...]]:
    """Every way to merge actors of so many steps, each in its own order."""
    if not any(lengths):
        yield ()
    for actor, left in enumerate(lengths):
        if left:
            for rest in orders(*(n - (i == actor) for i, n in enumerate(lengths))):
                yield (actor, *rest)
