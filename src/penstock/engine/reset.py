"""How is a table of ours emptied, in one commit?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from uuid import UUID

from deltalake.exceptions import DeltaError

from penstock.engine.committing import NOTHING_AFTER, ROUNDS, crowded_out, properties, removals
from penstock.engine.handle import UnreadableLog, latest_version, open_table
from penstock.engine.log import read
from penstock.engine.notes import of_reset
from penstock.engine.storage import Storage, first_line
from penstock.errors import EngineError
from penstock.intervals import IntervalSet


@dataclass(frozen=True, slots=True)
class Emptying:
    """What the commit says of itself."""

    task: UUID
    """Nobody's: should the database not hear of the commit, the audit finds one that no task owns, and its ranges."""
    model: str
    generation: str
    covered: IntervalSet


def empty(location: str, emptying: Emptying, storage: Storage | None = None) -> int | None:
    """Remove every file; the snapshot without rows, None when there is no table.

    Called while the generation's row is locked, so only foreign programs can come between.
    """
    noted = of_reset(emptying.task, emptying.model, emptying.generation, emptying.covered)
    for _ in range(ROUNDS):
        try:
            table = open_table(location, storage=storage)
            if table is None:
                return None
            head = read(table, location, None)
        except UnreadableLog as error:
            raise EngineError(error.message, hint=error.hint) from error
        if not head.files:
            return head.version
        removed = removals(head, head.files, time.time_ns() // 1_000_000)
        try:
            table.create_write_transaction(
                [*removed],
                "append",
                table.schema(),
                commit_properties=properties(noted),
                post_commithook_properties=NOTHING_AFTER,
            )
        except (DeltaError, OSError) as error:
            if latest_version(location, storage) == head.version:
                raise EngineError(f"cannot commit to {location}: {first_line(error)}") from error
            continue
        return head.version + 1
    raise crowded_out(emptying.model, location)
