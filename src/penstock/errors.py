"""What can go wrong, what it was about, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar, Literal

from penstock.secrets import concealed

ErrorClass = Literal["user", "engine", "lost", "conflict"]


class PenstockError(Exception):
    """The root: `kind` and `exit_code` reach the user, `hint` says what to do next."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message, self.hint = concealed(message), hint and concealed(hint)
        super().__init__(self.message)


class UsageError(PenstockError):
    """The call is wrong: nothing was done."""

    kind = "usage"
    exit_code = 2


class ProjectError(PenstockError):
    """One mistake in a project file."""

    kind = "project"
    exit_code = 2

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.file, self.line = file, line

    @property
    def place(self) -> str:
        if self.file is None:
            return ""
        return self.file if self.line is None else f"{self.file}:{self.line}"


class ProjectErrors(ProjectError):  # noqa: N818  # it is several
    """Every mistake that one reading of the project found."""

    def __init__(self, errors: Iterable[ProjectError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        message = "\n".join(f"{e.place}: {e.message}" if e.place else e.message for e in self.errors)
        super().__init__(message, file=first.file, line=first.line, hint=first.hint)


class UnknownModelError(UsageError):
    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, tuple(sorted(known))
        near = nearest(name, self.known)
        super().__init__(
            f"no model named {name!r}; the project has {', '.join(self.known) or 'none'}",
            hint=f"did you mean {near}?" if near else None,
        )


class StateError(PenstockError):
    """PostgreSQL cannot be reached or does not fit."""

    kind = "state"
    exit_code = 3


class SparkError(PenstockError):
    """Java, the Delta jars or Spark cannot be had."""

    kind = "spark"
    exit_code = 3


class SourceError(PenstockError):
    """A source could not be observed; its old bounds stay."""

    kind = "source"


class AttemptError(PenstockError):
    """An attempt ended without a result; `error_class` decides whether it is tried again."""

    kind = "attempt"
    error_class: ClassVar[ErrorClass] = "engine"
    divisible: ClassVar[bool] = True
    """A part of the batch may do better than the whole."""
    spark_jobs: int = 0
    """How many Spark jobs the attempt had run when it failed."""


class QueryError(AttemptError):
    """The author's query, schema or data is at fault: trying again cannot help."""

    error_class = "user"


class BadQueryError(QueryError):
    """The query cannot be understood at all: every chunk fails alike, so a batch is not split to find the bad one."""

    divisible = False


class EngineError(AttemptError):
    """Spark, the file system or the network failed: trying again may help."""


class ConflictError(AttemptError):
    """Another commit came between; costs no retry budget."""

    error_class = "conflict"


class BusyError(ConflictError):
    """The state database gave no lock in time: nothing was done, and asking again may help."""


class LeaseLostError(AttemptError):
    """Another worker owns the task now: stop, write nothing."""

    error_class = "lost"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()
    for close in get_close_matches(wanted, by_folded, n=5, cutoff=0.6):
        # A database in common makes any two names look alike: the tables must be alike too.
        if "." not in wanted or get_close_matches(wanted.split(".")[-1], [close.split(".")[-1]], cutoff=0.6):
            return by_folded[close]
    return None
