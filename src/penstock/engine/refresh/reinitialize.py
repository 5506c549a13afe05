"""Why can nobody tell, between two snapshots of a table, which rows changed?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Code = Literal[
    "TABLE_REPLACED", "SNAPSHOT_REWOUND", "HISTORY_EXPIRED", "TOO_MANY_COMMITS", "SCHEMA_CHANGED", "NOT_READABLE"
]


@dataclass(frozen=True, slots=True)
class Reinitialize:
    """The rows that changed cannot be told: whoever reads the table computes everything again."""

    code: Code
    reason: str


class CannotTell(Exception):  # noqa: N818  a finding, not a fault
    def __init__(self, answer: Reinitialize) -> None:
        self.answer = answer
        super().__init__(answer.reason)


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits of a table after one snapshot up to another."""

    location: str
    table_id: str
    after: int
    upto: int

    def replaced(self, now: str) -> CannotTell:
        return _cannot_tell(
            "TABLE_REPLACED",
            f"{self.location} was replaced after snapshot {self.after}: its id was {self.table_id} and is {now}",
        )

    def rewound(self) -> CannotTell:
        return _cannot_tell(
            "SNAPSHOT_REWOUND", f"{self.location} is at snapshot {self.upto}, but was read at snapshot {self.after}"
        )

    def no_snapshot(self, version: int) -> CannotTell:
        return _cannot_tell(
            "HISTORY_EXPIRED", f"snapshot {version} of {self.location} cannot be read any more; {self._needed()}"
        )

    def no_commit(self, version: int) -> CannotTell:
        return _cannot_tell(
            "HISTORY_EXPIRED", f"commit {version} of {self.location} is gone from its log; {self._needed()}"
        )

    def no_file(self, path: str) -> CannotTell:
        return _cannot_tell("HISTORY_EXPIRED", f"the file {path} of {self.location} is gone; {self._needed()}")

    def too_many(self, most: int) -> CannotTell:
        return _cannot_tell(
            "TOO_MANY_COMMITS",
            f"{self.location} has {self.upto - self.after} commits {self._between()}; at most {most} are read",
        )

    def schema_changed(self, what: str) -> CannotTell:
        return _cannot_tell("SCHEMA_CHANGED", f"{what} in {self.location} {self._between()}")

    def not_readable(self, why: str) -> CannotTell:
        return _cannot_tell("NOT_READABLE", f"only Spark can read {self.location} {self._between()}: {why}")

    def _needed(self) -> str:
        return f"the changes {self._between()} need it"

    def _between(self) -> str:
        return f"between snapshots {self.after} and {self.upto}"


def _cannot_tell(code: Code, reason: str) -> CannotTell:
    return CannotTell(Reinitialize(code, reason))
