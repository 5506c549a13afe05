"""Which names are free for columns of a plan?"""

from __future__ import annotations


class Names:
    """Gives names that no column of the plan has yet."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, like: str) -> str:
        number = self._next.get(like, 0)
        name = like if number == 0 else f"{like}_{number}"
        while name in self._taken:
            number += 1
            name = f"{like}_{number}"
        self._next[like] = number + 1
        self._taken.add(name)
        return name
