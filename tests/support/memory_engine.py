"""An engine whose tables live in memory and whose queries SQLite answers: thousands of attempts in a second.

It behaves as the real one does (`engine_contract` holds both to that); positions are whole numbers, and queries are
written in what Spark and SQLite have in common. `/` differs: write n - n % 10 to round down.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from uuid import UUID

from memory_append import Rule, appended, check_key, keys_of, places
from memory_store import MemoryStore
from memory_tables import Entry, MemoryFile, MemorySnapshot, MemoryTable, Row, Rows
from memory_tags import inside, shown, stars_understood, with_tags
from whole_engine import WholeEngine

from penstock.engine.commit.properties import ROUNDS
from penstock.engine.commit.publish import FileSetChanged
from penstock.engine.stage.compare import Comparison
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import Digest, InputRead, Job, StagedChunk, StagedFile, Step
from penstock.errors import BadQueryError, ConflictError, EngineError, QueryError, SourceError
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import ChunkResult, Commit, Cost

LABELS = ("planned", "written", "staged", "table created", "head loaded", "columns added", "delta committed")
"""The steps of an attempt that the engine itself tells, in their order; those of the real one."""
_UNNAMABLE = re.compile(r"[ ,;{}()\n\t=]")
_STEPS_BETWEEN_LOOKS = 10_000
Stopped = Callable[[], bool]


class MemoryEngine(MemoryStore, WholeEngine):
    """Computes and publishes as the real one does, on tables that are values."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, str], MemoryFile] = {}
        self._cancelled: set[tuple[UUID, int]] = set()

    # what an attempt asks for

    def stage(self, job: Job, step: Step) -> Staged:
        self._check_wanted(job)
        head = self._head(job.location)
        step("planned")
        new = _fitted(job, self._new_rows(job), head)
        self._check_wanted(job)
        live = head.meeting(job.scope) if head and not job.unique_key else ()
        folder = f"{job.task}/{job.attempt}"
        runs = _sorted_into(job.scope.parts, new, job.position.name)
        files = [self._write(job, f"{folder}/n{n}", Rows(new.columns, runs[part])) for n, part in enumerate(runs)]
        kept = self._keep(job, live, folder)
        step("written")
        staged = Staged(
            job=job,
            base_version=head.version if head else None,
            schema_json=_schema(new),
            files=tuple(file for file in files if file is not None),
            kept=kept,
            replaced=tuple(file.path for file in live),
            chunks=_judged(job, new, live, job.digests),
            cost=Cost(rows_written=len(new.rows)),
        )
        if job.unique_key:
            staged = self._looked_up(replace(staged, computed=staged.files), folder)
        step("staged")
        self._check_wanted(job)
        return staged

    def restage(self, staged: Staged, step: Step) -> Staged:
        """The new rows stay as they are; what to keep beside them is found again."""
        job = staged.job
        self._check_wanted(job)
        head = self._head(job.location)
        if job.unique_key:
            step("written")
            again = self._looked_up(staged, f"{job.task}/{job.attempt}-{head.version if head else 'new'}")
            step("staged")
            return again
        live = head.meeting(job.scope) if head else ()
        kept = self._keep(job, live, f"{job.task}/{job.attempt}-{head.version if head else 'new'}")
        step("written")
        new = self._rows_of(staged, staged.files)
        # what the chunks held once says nothing about a table that somebody else has changed
        chunks = _judged(job, new, live, {})
        step("staged")
        replaced = tuple(file.path for file in live)
        return replace(staged, base_version=head.version if head else None, kept=kept, replaced=replaced, chunks=chunks)

    def _looked_up(self, staged: Staged, folder: str) -> Staged:
        """An append against the table as it is now: what its query gave is in `computed`."""
        job, head = staged.job, self._head(staged.job.location)
        new = self._rows_of(staged, staged.computed)
        appended_rows = appended(job, new, head)
        runs = _sorted_into(job.scope.parts, Rows(new.columns, appended_rows.fresh), job.position.name)
        files = [self._write(job, f"{folder}/f{n}", Rows(new.columns, runs[part])) for n, part in enumerate(runs)]
        kept = [
            self._write(job, f"{folder}/k{number}", Rows(file.columns, rows))
            for number, (file, rows) in enumerate(appended_rows.left)
        ]
        counts = _sorted_into(job.chunks, new, job.position.name)
        differs = {
            chunk: places(p for p in appended_rows.differs if chunk.start <= p < chunk.end) for chunk in job.chunks
        }
        return replace(
            staged,
            base_version=head.version if head else None,
            files=tuple(file for file in files if file is not None),
            kept=tuple(file for file in kept if file is not None),
            replaced=tuple(file.path for file, _ in appended_rows.left),
            chunks=tuple(
                StagedChunk(chunk, len(counts[chunk]), None, bool(differs[chunk]), differs[chunk] or None)
                for chunk in job.chunks
            ),
        )

    def _rows_of(self, staged: Staged, files: Sequence[StagedFile]) -> Rows:
        columns = tuple(field["name"] for field in json.loads(staged.schema_json)["fields"])
        return Rows(columns, [row for file in files for row in self._written[staged.job.location, file.path].rows])

    def prepared(self, staged: Staged) -> Staged:
        """There is nothing to load."""
        return staged

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged:
        job = staged.job
        for _ in range(ROUNDS):
            self._check_wanted(job)
            head = self._head(job.location)
            if head is None:
                head = self._created(staged)
                step("table created")
            step("head loaded")
            commit = self.find_commit(job.location, job.task)
            if commit is not None:
                return commit
            changed = moved(head, staged)
            if changed is not None:
                return changed
            outcome = self._commit(staged, head, step)
            if outcome is not None:
                return outcome
        raise ConflictError(f"{job.model}: other commits came between {ROUNDS} times in a row at {job.location}")

    def find_commit(self, location: str, task: UUID) -> Commit | None:
        """What the log holds of a task; None when the task never committed."""
        with self._lock:
            table = self._tables.get(location)
            commit = table.commits.get(task) if table else None
        return None if commit is None else replace(commit, adopted=True)

    def cancel(self, task: UUID, attempt: int) -> None:
        """From here on nothing of this attempt is committed, and what it runs ends soon."""
        with self._lock:
            self._cancelled.add((task, attempt))

    def checkpoint(self, location: str) -> None:
        """There is no log to sum up."""

    def discard(self, job: Job, *, others: bool = False) -> None:
        """What is staged lies in no folder."""

    # what people ask for

    def query(self, sql: str, reads: Sequence[InputRead], limits: object = None) -> list[dict[str, object]]:
        answered = self.answer(sql, reads)
        return [dict(zip(answered.columns, row, strict=True)) for row in answered.rows]

    def compare(self, job: Job, snapshot: int) -> Comparison:
        """Compute the job's rows again and compare them, as multisets, with what the table holds at a snapshot."""
        new = self._new_rows(job)
        if job.unique_key:
            return self._compared_by_key(job, new, snapshot)
        expected = _sorted_into(job.chunks, new, job.position.name)
        counts = Counter[str]()
        differing: set[Interval] = set()
        for chunk in job.chunks:
            here = self.multiset(job.location, snapshot, IntervalSet.of([chunk]))
            there = Rows(new.columns, expected[chunk]).multiset()
            missing, unexpected = there - here, here - there
            counts.update(stored=here.total(), expected=there.total())
            counts.update(missing=missing.total(), unexpected=unexpected.total())
            if missing or unexpected:
                differing.add(chunk)
        return Comparison(
            rows_stored=counts["stored"],
            rows_expected=counts["expected"],
            missing=counts["missing"],
            unexpected=counts["unexpected"],
            differing=frozenset(differing),
            samples=(),
        )

    def _compared_by_key(self, job: Job, new: Rows, snapshot: int) -> Comparison:
        stored = self.snapshot(job.location, snapshot).read()
        missing, unexpected = Rule.of(job).lacking(new, stored, job.scope)
        expected = set(keys_of(new.rows, new.columns, job.unique_key))
        differences = (Rows(new.columns, missing), Rows(stored.columns, unexpected))
        sorted_ = [_sorted_into(job.chunks, rows, job.position.name) for rows in differences]
        return Comparison(
            rows_stored=len(self.snapshot(job.location, snapshot).read(job.scope).rows),
            rows_expected=len(expected),
            missing=len(missing),
            unexpected=len(unexpected),
            differing=frozenset(chunk for chunk in job.chunks if any(rows[chunk] for rows in sorted_)),
            samples=(),
        )

    def count_rows(self, read: InputRead) -> int:
        return len(self._read(read).rows)

    def scan_bounds(
        self, location: str, source_format: str, position: PositionColumn, *, snapshot: int | None, sql: str | None
    ) -> tuple[int | None, int | None]:
        if sql is not None or source_format != "delta":
            raise SourceError("such a source is not for this engine")
        snapshot_read = self.snapshot(location, snapshot)
        return snapshot_read.low, snapshot_read.high

    def answer(self, sql: str, reads: Sequence[InputRead], stopped: Stopped = lambda: False) -> Rows:
        """The rows of a query over pinned and cut inputs; a mistake in it is its author's."""
        with closing(_connected(stopped)) as connection:
            return self._asked(connection, sql, reads)

    # how it is done

    def _asked(self, connection: sqlite3.Connection, sql: str, reads: Sequence[InputRead]) -> Rows:
        for read in reads:
            rows = self._read(read)
            names = ", ".join(f'"{name}"' for name in rows.columns)
            connection.execute(f'create table "{read.view}" ({names})')
            if rows.rows:
                marks = ", ".join("?" * len(rows.columns))
                connection.executemany(f'insert into "{read.view}" values ({marks})', rows.rows)
        try:
            cursor = connection.execute(stars_understood(sql))
            return Rows(tuple(column[0] for column in cursor.description), cursor.fetchall())
        except sqlite3.Error as error:
            raise _translated(connection, sql, error) from error

    def _new_rows(self, job: Job) -> Rows:
        """What every rendering gives inside its interval; a row outside is the query's fault unless it looks beyond."""
        columns: tuple[str, ...] | None = None
        together: list[Row] = []
        with closing(_connected(lambda: self._is_cancelled(job))) as connection:
            for rendering in job.renderings:
                answered = self._asked(connection, rendering.sql, rendering.inputs)
                columns = columns or _storable(job, shown(answered))
                kept = inside(rendering, answered, job.position.name)
                check_key(job, columns)
                if not job.cut and len(kept.rows) != len(answered.rows):
                    raise QueryError(f"{job.model}: rows lie outside of {rendering.scope}")
                together += kept.arranged(columns)
        assert columns is not None, "a job has a rendering"
        return Rows(columns, together)

    def _read(self, read: InputRead) -> Rows:
        rows = self._pinned(read.pin).read(None if read.position is None else read.window)
        return rows if read.tags is None or read.position is None else with_tags(rows, read.tags, read.position.name)

    def _is_cancelled(self, job: Job) -> bool:
        return (job.task, job.attempt) in self._cancelled

    def _check_wanted(self, job: Job) -> None:
        if self._is_cancelled(job):
            raise EngineError(f"{job.model}: the attempt was cancelled")

    def _write(self, job: Job, path: str, rows: Rows) -> StagedFile | None:
        if not rows.rows:
            return None
        file = MemoryFile.of(path, rows, job.position.name)
        with self._lock:
            if (job.location, path) in self._written:
                raise EngineError(f"{path} of {job.location} was written before: an attempt stages once")
            self._written[job.location, path] = file
        return StagedFile(path, len(file.rows), len(file.rows), "{}", file.low, file.high, file.nulls)

    def _keep(self, job: Job, live: Sequence[MemoryFile], folder: str) -> tuple[StagedFile, ...]:
        """The rows outside the scope of files that straddle it, one file per gap."""
        straddlers = [file for file in live if not file.inside(job.scope)]
        if not straddlers:
            return ()
        columns = max((file.columns for file in straddlers), key=len)
        parts: list[list[Row]] = []
        for gap in job.scope.complement():
            window = IntervalSet((gap.start, gap.end))
            meeting = [file for file in straddlers if file.low is not None and file.meets(window)]
            parts.append([row for file in meeting for row in file.cut(window).arranged(columns)])
        parts.append([row for file in straddlers for row in Rows(file.columns, file.unplaced()).arranged(columns)])
        kept = [self._write(job, f"{folder}/k{number}", Rows(columns, rows)) for number, rows in enumerate(parts)]
        return tuple(file for file in kept if file is not None)

    def _created(self, staged: Staged) -> MemorySnapshot:
        """A new, empty table; of two creators one finds the other's."""
        job = staged.job
        with self._lock:
            if job.location not in self._tables:
                columns = tuple(field["name"] for field in json.loads(staged.schema_json)["fields"])
                table = MemoryTable(self._new_id(), job.position.name)
                table.append(columns, (), (), Entry("CREATE TABLE", generation=job.generation))
                self._tables[job.location] = table
            return self._tables[job.location].head

    def _commit(self, staged: Staged, head: MemorySnapshot, step: Step) -> Commit | None:
        """One try on top of `head`; None when another commit came between."""
        job = staged.job
        new = tuple(field["name"] for field in json.loads(staged.schema_json)["fields"])
        added = tuple(name for name in new if name not in head.columns)
        if added and not job.add_columns:
            raise QueryError(f"the query has the new column {added[0]!r}")
        outcome = _outcome(staged, head.version + 1, written=True)
        if not outcome.changed or not (staged.files or staged.kept or staged.replaced):
            return _outcome(staged, head.version, written=False)
        with self._lock:
            table = self._tables.get(job.location)
            if table is None or table.head is not head:
                return None
            self._check_wanted(job)
            if added:
                table.append(head.columns + added, head.files, (), Entry("ADD COLUMNS", generation=job.generation))
            else:
                gone = set(staged.replaced)
                stay = [file for file in head.files if file.path not in gone]
                come = [self._written[job.location, file.path] for file in (*staged.files, *staged.kept)]
                entry = Entry("WRITE", job.task, job.attempt, job.generation, outcome)
                table.append(head.columns, stay, come, entry, changed=outcome.changed)
        if added:
            step("columns added")
            return None
        step("delta committed")
        return outcome


def moved(head: MemorySnapshot, staged: Staged) -> FileSetChanged | None:
    """Whether the live files are others than those the attempt read; an append looks for its keys in all of them."""
    if staged.job.unique_key:
        looked = staged.base_version == head.version or (staged.base_version is None and not head.files)
        return None if looked else FileSetChanged(head.version, tuple(file.path for file in head.files))
    live = tuple(file.path for file in head.meeting(staged.job.scope))
    return None if set(live) == set(staged.replaced) else FileSetChanged(head.version, live)


def _connected(stopped: Stopped) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.create_function("raise_error", 1, _raise_error)
    connection.set_progress_handler(stopped, _STEPS_BETWEEN_LOOKS)
    connection.execute("begin")  # else every inserted row were a transaction of its own
    return connection


def _raise_error(text: object) -> None:
    """Spark has it too: a query that fails where its data says so."""
    raise ValueError(text)


def _translated(connection: sqlite3.Connection, sql: str, error: sqlite3.Error) -> EngineError | QueryError:
    if str(error) == "interrupted":
        return EngineError("the attempt was cancelled while its query ran")
    try:
        connection.execute(f"explain {sql}")
    except sqlite3.Error:
        return BadQueryError(f"{error}")
    return QueryError(f"{error}")


def _storable(job: Job, columns: tuple[str, ...]) -> tuple[str, ...]:
    if job.position.name not in columns:
        raise QueryError(f"{job.model}: the query gives no column {job.position.name}")
    for name in columns:
        if _UNNAMABLE.search(name) or columns.count(name) > 1:
            raise QueryError(f"{job.model}: {name!r} is no name for a stored column, or stands there twice")
    return columns


def _fitted(job: Job, new: Rows, head: MemorySnapshot | None) -> Rows:
    """The new rows in the table's columns, then those that the query adds."""
    if head is None:
        return new
    added = [name for name in new.columns if name not in head.columns]
    if added and not job.add_columns:
        raise QueryError(f"{job.model}: the query has new columns: {', '.join(added)}")
    columns = (*head.columns, *added)
    return Rows(columns, new.arranged(columns))


def _schema(new: Rows) -> str:
    """As Delta spells it; SQLite knows no types, so the values have to tell."""
    kinds = {int: "long", float: "double", str: "string", bytes: "binary"}
    fields = []
    for place, name in enumerate(new.columns):
        value = next((row[place] for row in new.rows if row[place] is not None), 0)
        fields.append({"name": name, "type": kinds[type(value)], "nullable": True, "metadata": {}})
    return json.dumps({"type": "struct", "fields": fields})


def _sorted_into(parts: Sequence[Interval], rows: Rows, position: str) -> dict[Interval, list[Row]]:
    """The rows by the part they lie in; those in none are left out."""
    sorted_: dict[Interval, list[Row]] = {part: [] for part in parts}
    ordered = sorted(parts)
    starts = [part.start for part in ordered]
    at = rows.columns.index(position)
    for row in rows.rows:
        value = row[at]
        if isinstance(value, int) and (place := bisect_right(starts, value)) and value < ordered[place - 1].end:
            sorted_[ordered[place - 1]].append(row)
    return sorted_


def _judged(
    job: Job, new: Rows, live: Sequence[MemoryFile], known: Mapping[Interval, Digest]
) -> tuple[StagedChunk, ...]:
    by_chunk = _sorted_into(job.chunks, new, job.position.name)
    chunks_now = []
    for chunk, rows in by_chunk.items():
        digest = _digest(Rows(new.columns, rows))
        window = IntervalSet((chunk.start, chunk.end))
        meeting = [file for file in live if file.meets(window)]
        differs: IntervalSet | None = None
        if not job.deduplicate:
            changed = True
        elif not meeting:
            changed = bool(rows)
        elif known.get(chunk) == digest:
            changed = False
        else:
            before = Counter([row for file in meeting for row in file.cut(window).canonical()])
            after = Rows(new.columns, rows).multiset()
            gone_or_new = [dict(row)[job.position.name] for row in [*(before - after), *(after - before)]]
            differs = places(p for p in gone_or_new if isinstance(p, int)) or None
            changed = differs is not None or chunk in known
        chunks_now.append(StagedChunk(chunk, len(rows), digest, changed, differs))
    return tuple(chunks_now)


def _digest(rows: Rows) -> Digest:
    hashes = [hashlib.blake2b(repr(row).encode(), digest_size=12).digest() for row in rows.canonical()]
    return Digest(
        len(hashes),
        sum(int.from_bytes(digest[:8], "big") for digest in hashes),
        sum(int.from_bytes(digest[8:], "big") for digest in hashes),
    )


def _outcome(staged: Staged, version: int, *, written: bool) -> Commit:
    chunks = tuple(
        ChunkResult(
            c.interval,
            c.rows,
            c.changed,
            None if c.digest is None else (c.digest.rows, c.digest.sum_a, c.digest.sum_b),
            c.differs,
        )
        for c in staged.chunks
    )
    return Commit(version, chunks, staged.job.frontier, staged.job.epoch, written)
