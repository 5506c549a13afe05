"""What was wrong with the project files, and where?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import ProjectError, ProjectErrors, nearest


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """A line of a project file; lines count from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that works but is hardly meant."""

    message: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class Problems:
    """Collects every mistake of one reading, so that one run reports them all."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, int, str], ProjectError] = {}
        self._notices: list[Notice] = []

    def add(self, where: Where, message: str, hint: str | None = None) -> None:
        error = ProjectError(message, file=where.file, line=where.line, hint=hint)
        self._errors.setdefault((where.file, where.line, message), error)

    def warn(self, where: Where, message: str) -> None:
        notice = Notice(message, where.file, where.line)
        if notice not in self._notices:
            self._notices.append(notice)

    @property
    def count(self) -> int:
        return len(self._errors)

    @property
    def notices(self) -> tuple[Notice, ...]:
        return tuple(sorted(self._notices, key=lambda n: (n.file, n.line)))

    def raise_if_any(self) -> None:
        if self._errors:
            raise ProjectErrors(sorted(self._errors.values(), key=lambda e: (e.file or "", e.line or 0)))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no name is near."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
