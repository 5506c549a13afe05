"""What do all commits of ours have in common?"""

from __future__ import annotations

from collections.abc import Collection

from deltalake import CommitProperties, PostCommitHookProperties, Transaction
from deltalake.transaction import RemoveAction

from penstock.engine.log.commit_info import Note, written
from penstock.engine.log.storage import is_absolute
from penstock.engine.values.files import DataFile, TableSnapshot
from penstock.errors import ConflictError, EngineError

ROUNDS = 5
"""So often another program may come between before an attempt gives up."""
# Checkpoints and the cleaning of the log are maintenance: a commit is one small act.
NOTHING_AFTER = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def properties(noted: Note, transaction: Transaction | None = None) -> CommitProperties:
    """Without retries: what was decided holds for the snapshot it was decided on."""
    return CommitProperties(
        custom_metadata=written(noted),
        app_transactions=None if transaction is None else [transaction],
        max_commit_retries=0,
    )


def removals(head: TableSnapshot, files: Collection[DataFile], now_ms: int) -> list[RemoveAction]:
    """The actions that take files away; an error when one of them would leave rows behind."""
    check_removable(head, files)
    return [RemoveAction(file.path, True, now_ms, file.size, {}) for file in files]


def check_removable(head: TableSnapshot, files: Collection[DataFile]) -> None:
    if head.partition_columns or (head.needs_delta_reader or "").startswith("column mapping"):
        raise EngineError(
            f"{head.location} is no longer a table as Penstock makes them",
            hint="another program altered it: rebuild the model",
        )
    for file in files:
        # A removal carries no deletion vector, so the file would stay visible beside its replacement.
        if file.has_deletion_vector:
            raise EngineError(
                f"the file {file.path} of {head.location} has a deletion vector and cannot be replaced",
                hint="run REORG TABLE … APPLY (PURGE) on it, and keep deletion vectors off",
            )
        if is_absolute(file.path):
            raise EngineError(
                f"the file {file.path} lies outside the table {head.location} and cannot be replaced",
                hint="another program cloned into the table: rebuild the model",
            )


def crowded_out(model: str, location: str) -> ConflictError:
    return ConflictError(
        f"{model}: other commits came between {ROUNDS} times in a row at {location}",
        hint="is another program writing to this table?",
    )
