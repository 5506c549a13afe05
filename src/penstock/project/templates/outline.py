"""What does the text of a template say, whatever branch it stands in?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outline:
    """What the text of a template says, whatever branch it stands in."""

    names: frozenset[str]
    """Taken from outside."""
    lines: Mapping[str, int]
    """Where each name stands first."""
    uses: Mapping[str, tuple[Use, ...]]
    """Of each name, in the order of the text."""
    printed: frozenset[str] = frozenset()
    """Names that do nothing but stand in the text."""

    def members(self, name: str) -> frozenset[str] | None:
        """X of every `name.X` and `name['X']`; None when `name` is used in another way too."""
        members = [use.member for use in self.uses.get(name, ())]
        return None if None in members else frozenset(member for member in members if member is not None)

    def calls(self, name: str) -> Iterator[tuple[str, int]]:
        """The constant text that the function `name` is called with first, and the line, in the order of the text."""
        return ((use.argument, use.line) for use in self.uses.get(name, ()) if use.argument is not None)

    def constants(self, name: str) -> frozenset[str] | None:
        """What the function `name` is called with first; None when it is used in another way too."""
        arguments = [use.argument for use in self.uses.get(name, ())]
        return None if None in arguments else frozenset(argument for argument in arguments if argument is not None)


@dataclass(frozen=True, slots=True)
class Use:
    """One place where a name stands: `name.member`, `name('argument')`, or anything else."""

    line: int
    member: str | None = None
    argument: str | None = None
