"""How is a table of ours emptied, in one commit?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from uuid import UUID

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.engine.commit.properties import NOTHING_AFTER, ROUNDS, crowded_out, properties, removals
from penstock.engine.log.commit_info import of_reset
from penstock.engine.log.handle import UnreadableLog, latest_version, open_table
from penstock.engine.log.loaded import LoadedHead, load_head
from penstock.engine.log.snapshot import read
from penstock.engine.log.storage import Storage, first_line
from penstock.engine.values.files import TableSnapshot
from penstock.engine.values.job import HeadMoved
from penstock.errors import EngineError
from penstock.values.intervals import IntervalSet


@dataclass(frozen=True, slots=True)
class Emptying:
    """What the commit says of itself."""

    task: UUID
    """Of no task: if the database does not record the commit, the audit finds one that no task owns, and its ranges."""
    model: str
    generation: str
    covered: IntervalSet


def head_of(location: str, storage: Storage | None = None) -> LoadedHead | None:
    """The head of the log, to be loaded before the lock is taken; None where only the lock keeps it still."""
    try:
        return load_head(location, None, storage)
    except UnreadableLog as error:
        raise EngineError(error.message, hint=error.hint) from error


def empty(
    location: str, emptying: Emptying, storage: Storage | None = None, head: LoadedHead | None = None
) -> int | HeadMoved | None:
    """Remove every file; the snapshot without rows, None when there is no table.

    Called while the generation's row is locked, so only foreign programs can come between. HeadMoved when one did since
    the head was loaded.
    """
    if head is not None:
        if not head.is_head():
            return HeadMoved()
        emptied = _emptied(head.table, head.snapshot, emptying, storage)
        return HeadMoved() if emptied is None else emptied
    for _ in range(ROUNDS):
        try:
            table = open_table(location, storage=storage)
            if table is None:
                return None
            emptied = _emptied(table, read(table, location, None), emptying, storage)
        except UnreadableLog as error:
            raise EngineError(error.message, hint=error.hint) from error
        if emptied is not None:
            return emptied
    raise crowded_out(emptying.model, location)


def _emptied(table: DeltaTable, head: TableSnapshot, emptying: Emptying, storage: Storage | None) -> int | None:
    """One try on top of `head`; None when another commit came between."""
    if not head.files:
        return head.version
    noted = of_reset(emptying.task, emptying.model, emptying.generation, emptying.covered)
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
        if latest_version(head.location, storage) == head.version:
            raise EngineError(f"cannot commit to {head.location}: {first_line(error)}") from error
        return None
    return head.version + 1
