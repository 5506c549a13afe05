"""What is known about a query once it has been analysed?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from penstock.project.reading.toolchain import identity


@dataclass(frozen=True, slots=True)
class Facts:
    """What the analysis of a rendered query depends on besides its text."""

    position: str
    axis: str
    align: int
    input_position: str | None
    """The position column of the only input that is read; None when there is no such input."""
    obstacle: str | None
    """Why the query cannot be widened, whatever its text says."""
    texts: tuple[str, ...] = ()
    """The query as it is rendered for chunks that share it, in each lane."""
    carriers: tuple[str, ...] = ()
    """The relations in `texts` that are read by position."""
    unshared: str | None = None
    """Why chunks cannot share the query even when its rows carry their chunk, whatever its text says."""


@dataclass(frozen=True, slots=True)
class Analysis:
    grouped: bool
    widens: bool
    widens_reason: str
    grain: int | None
    """The position is the input's position, rounded down to multiples of this."""
    tagged: bool = False
    """It widens because its rows carry their chunk."""


class QueryProblem(Exception):  # noqa: N818  # becomes a ProjectError once file and line are known
    """A query that cannot be a model's; the line counts from the query's first."""

    def __init__(self, message: str, line: int) -> None:
        self.message, self.line = message, line
        super().__init__(message)


class UnpinnedTable(QueryProblem):
    """The query names a table itself."""

    def __init__(self, table: str, line: int) -> None:
        self.table = table
        said = f"the query reads {table} directly, so nothing pins what it sees"
        super().__init__(f"{said}; declare it as a model and write {{{{ ref('{table}') }}}}", line)

    def among(self, models: Iterable[str]) -> str:
        """The message, for somebody whose project has these models."""
        wanted = self.table.lower()
        meant = [name for name in models if wanted in (name.lower(), name.lower().split(".")[-1])]
        if len(meant) != 1:
            return self.message
        return f"the query reads {self.table} directly: write {{{{ ref('{meant[0]}') }}}} instead of {self.table}"


def digest(sql: str, facts: Facts) -> str:
    """Equal digests mean equal analyses by the same code, so that a remembered one can be used."""
    text = json.dumps([identity(), sql, asdict(facts)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
