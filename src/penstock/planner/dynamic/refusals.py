"""Why can a query only be computed whole?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FullOnly:
    """The table can only be computed whole; `code` is for programs, `reason` for people."""

    code: str
    reason: str


class Refused(Exception):  # noqa: N818  # an answer, and no failure
    """Raised where the query is read, at the first thing for which there is no rule."""

    def __init__(self, code: str, reason: str) -> None:
        self.answer = FullOnly(code, reason)
        super().__init__(reason)
