"""How do staged files become a snapshot, once and only once?"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from uuid import UUID

from deltalake import DeltaTable, Field, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from penstock.engine.commit.properties import NOTHING_AFTER, ROUNDS, crowded_out, properties, removals
from penstock.engine.log.commit_info import digest_noted, note, of_attempt, recorded
from penstock.engine.log.handle import UnreadableLog, commit_at, latest_version, open_table
from penstock.engine.log.loaded import LoadedHead, load_head
from penstock.engine.log.snapshot import read
from penstock.engine.log.storage import Storage, first_line, options, read_text
from penstock.engine.rows.evolution import columns_to_add, indexed_columns, storable
from penstock.engine.rows.statistics import INDEXED_COLUMNS
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import TableSnapshot
from penstock.engine.values.job import HeadMoved, Step
from penstock.errors import EngineError
from penstock.values.tasks import ChunkResult, Commit

CHECKPOINT_EVERY = 100
_PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "false",
    "delta.setTransactionRetentionDuration": "interval 7 days",
}


@dataclass(frozen=True, slots=True)
class FileSetChanged:
    """There are other files now than those the attempt read: what depends on them must be staged again."""

    version: int
    live: tuple[str, ...]


def prepared(staged: Staged, storage: Storage | None = None) -> Staged | FileSetChanged:
    """The same with the head of the log loaded, so that nothing slow is left for the lock."""
    job = staged.job
    try:
        head = load_head(job.location, job.position, storage, staged.base_version)
        commit = None if head is None else find_commit(job.location, job.task, storage, table=head.table)
    except UnreadableLog as error:
        raise EngineError(error.message, hint=error.hint) from error
    changed = None if head is None or commit is not None else moved(head.snapshot, staged)
    return changed or replace(staged, head=head, committed=commit)


def publish(staged: Staged, step: Step, storage: Storage | None = None) -> Commit | FileSetChanged | HeadMoved:
    """Commit staged files, or adopt what an earlier attempt of the task committed.

    Called while the generation's row is locked, so only foreign programs can come between.
    """
    if staged.head is not None:
        return _publish_on(staged.head, staged, step, storage)
    job = staged.job
    for _ in range(ROUNDS):
        table = _head(staged, step, storage)
        step("head loaded")
        commit = find_commit(job.location, job.task, storage, table=table)
        if commit is not None:
            return commit
        try:
            head = read(table, job.location, job.position)
        except UnreadableLog as error:
            raise EngineError(error.message, hint=error.hint) from error
        changed = moved(head, staged)
        if changed is not None:
            return changed
        outcome = _commit(staged, head, table, step, storage)
        if outcome is not None:
            return outcome
    raise crowded_out(job.model, job.location)


def _publish_on(
    loaded: LoadedHead, staged: Staged, step: Step, storage: Storage | None
) -> Commit | FileSetChanged | HeadMoved:
    """On top of a head that was loaded before the lock was taken, if it still is the head."""
    if not loaded.is_head():
        return HeadMoved()
    step("head loaded")
    if staged.committed is not None:
        return staged.committed
    changed = moved(loaded.snapshot, staged)
    if changed is not None:
        return changed
    return _commit(staged, loaded.snapshot, loaded.table, step, storage) or HeadMoved()


def find_commit(
    location: str, task: UUID, storage: Storage | None = None, *, table: DeltaTable | None = None
) -> Commit | None:
    """What the log holds of a task; None when the task never committed."""
    table = table if table is not None else open_table(location, storage=storage)
    if table is None or table.transaction_version(str(task)) is None:
        return None
    for version in range(table.version(), -1, -1):
        commit = commit_at(location, version, storage)
        if commit is None:
            break
        noted = note(commit)
        if noted is not None and noted.get("task") == str(task):
            return recorded(version, noted)
    raise EngineError(
        f"{location} says that task {task} has committed, but the commit is no longer in the log",
        hint="the log was cleaned too early: rerun the task's range",
    )


def moved(head: TableSnapshot, staged: Staged) -> FileSetChanged | None:
    """Whether the live files are others than those the attempt read.

    What replaces has read those that meet its scope, and perhaps small ones beside it. A key may be anywhere: after any
    commit what goes by keys looks again.
    """
    if staged.on_base:
        looked = staged.base_version == head.version or (staged.base_version is None and not head.files)
        return None if looked else FileSetChanged(head.version, tuple(file.path for file in head.files))
    live = tuple(file.path for file in head.meeting(staged.job.scope))
    there = {file.path for file in head.files}
    same = set(live) <= set(staged.replaced) <= there
    return None if same else FileSetChanged(head.version, live)


def checkpoint(location: str, storage: Storage | None = None, *, every: int = CHECKPOINT_EVERY) -> bool:
    """Write a checkpoint when that many commits came since the last one; never needed for correctness."""
    table = open_table(location, storage=storage)
    if table is None:
        return False
    text = read_text(location, "_delta_log/_last_checkpoint", storage)
    last = int(json.loads(text)["version"]) if text else -1
    if table.version() - last < every:
        return False
    try:
        table.create_checkpoint()
    except DeltaError as error:
        raise EngineError(f"cannot write a checkpoint of {location}: {first_line(error)}") from error
    return True


def _head(staged: Staged, step: Step, storage: Storage | None) -> DeltaTable:
    job = staged.job
    try:
        table = open_table(job.location, storage=storage)
    except UnreadableLog as error:
        raise EngineError(error.message, hint=error.hint) from error
    if table is None:
        table = _created(staged, storage)
        step("table created")
    return table


def _created(staged: Staged, storage: Storage | None) -> DeltaTable:
    """A new, empty table; the log's first file can be written once, so of two creators one finds the other's."""
    job = staged.job
    schema = storable(staged.schema_json, job.position)
    configuration = dict(_PROPERTIES)
    indexed = indexed_columns(schema, job.position)
    if indexed != INDEXED_COLUMNS:
        configuration["delta.dataSkippingNumIndexedCols"] = str(indexed)
    try:
        DeltaTable.create(
            job.location,
            schema,
            mode="error",
            configuration=configuration,
            storage_options=options(storage),
            commit_properties=properties({"generation": job.generation, "model": job.model, "created": True}),
            post_commithook_properties=NOTHING_AFTER,
        )
    except (DeltaError, OSError) as error:
        created = open_table(job.location, storage=storage)
        if created is None:
            raise EngineError(f"cannot create the table {job.location}: {first_line(error)}") from error
        return created
    table = open_table(job.location, storage=storage)
    if table is None:
        raise EngineError(f"the table {job.location} vanished right after it was created")
    return table


def _commit(
    staged: Staged, head: TableSnapshot, table: DeltaTable, step: Step, storage: Storage | None
) -> Commit | None:
    """One try on top of `head`; None when another commit came between."""
    job = staged.job
    files = (*staged.files, *staged.kept)
    missing = columns_to_add(table.schema(), storable(staged.schema_json, job.position), job.add_columns)
    # Without files on either side there is nothing to commit, whatever the chunks held before.
    if not any(chunk.changed for chunk in staged.chunks) or not (files or staged.replaced):
        return _outcome(staged, head.version, written=False)
    replaced = [file for file in head.files if file.path in set(staged.replaced)]
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, {}, now, True, file.stats_json) for file in files
    ]
    actions += removals(head, replaced, now)
    try:
        if missing:
            _add_columns(table, staged, missing)
            step("columns added")
            return None
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            commit_properties=properties(of_attempt(job, staged.chunks), Transaction(str(job.task), 1, now)),
            post_commithook_properties=NOTHING_AFTER,
        )
    except (DeltaError, OSError) as error:
        if latest_version(job.location, storage) != head.version:
            return None
        raise EngineError(f"cannot commit to {job.location}: {first_line(error)}") from error
    step("delta committed")
    # Without retries the commit stands right after the snapshot it was made from; the handle does not move.
    return _outcome(staged, head.version + 1, written=True)


def _add_columns(table: DeltaTable, staged: Staged, missing: list[Field]) -> None:
    table.alter.add_columns(
        missing,
        commit_properties=properties({"generation": staged.job.generation, "added": [f.name for f in missing]}),
        post_commithook_properties=NOTHING_AFTER,
    )


def _outcome(staged: Staged, version: int, *, written: bool) -> Commit:
    chunks = tuple(ChunkResult(c.interval, c.rows, c.changed, digest_noted(c), c.differs) for c in staged.chunks)
    job = staged.job
    return Commit(version, chunks, job.frontier, job.epoch, written, moment=job.moment)
