"""Why was a range reopened, in words?"""

from __future__ import annotations

from typing import assert_never

from penstock.answers.pairs import pairs
from penstock.answers.status import iso
from penstock.values.records import ReopeningRecord


def words(record: ReopeningRecord) -> str:
    """One line: whose doing it was, and what it was about."""
    match record.cause:
        case "source" | "parent":
            what = record.model if record.snapshot is None else f"commit {record.snapshot} of {record.model}"
            return f"{what} changed {_rows(record)} of this interval"
        case "rerun":
            return f"rerun by {record.actor}{_where(record)}"
        case "manual":
            return f"{record.model} invalidated by {record.actor}{_where(record)}: {record.reason}"
        case "audit":
            return record.reason
        case _:
            assert_never(record.cause)


def row(record: ReopeningRecord) -> dict[str, object]:
    """The same for programs."""
    return {
        "why": words(record),
        "cause": record.cause,
        "model": record.model,
        "snapshot": record.snapshot,
        "rows": record.rows,
        "reason": record.reason,
        "actor": record.actor,
        "where": record.row_filter,
        "ranges": pairs(record.ranges),
        "at": iso(record.created_at),
        "state": "open" if record.open else "repaired",
        "open": pairs(record.open),
        "repaired_at": None if record.open else iso(record.closed_at),
    }


def _rows(record: ReopeningRecord) -> str:
    return "rows" if record.rows is None else f"{record.rows} row{'' if record.rows == 1 else 's'}"


def _where(record: ReopeningRecord) -> str:
    return "" if record.row_filter is None else f" where {record.row_filter}"
