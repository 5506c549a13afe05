"""Computes the rows of a refresh and writes them where nobody sees them yet."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, assert_never

from pyarrow.fs import FileType

from penstock.engine.log.snapshot import snapshot
from penstock.engine.log.storage import Storage, place
from penstock.engine.refresh.change_views import ChangeViews, rows_as_view
from penstock.engine.refresh.changed_rows import FewRows
from penstock.engine.refresh.changes import ByKeys, Everything, Nothing, plan_refresh
from penstock.engine.refresh.holding_files import holding
from penstock.engine.rows.columns import fits, fitted, target_schema
from penstock.engine.rows.digest import HASH_A, HASH_B, digest_of, hash_columns, sums
from penstock.engine.spark.failures import translating
from penstock.engine.spark.query import collected
from penstock.engine.spark.read import PlannedRead, Reader, plain_schema, through_parquet
from penstock.engine.spark.session import Attempt, Session
from penstock.engine.stage.checks import check
from penstock.engine.stage.file_parts import written
from penstock.engine.stage.query_rows import SMALL_BYTES, configure
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import DataFile, TableSnapshot
from penstock.engine.values.job import Digest, RefreshJob, StagedChunk, StagedFile, Step
from penstock.engine.values.predicate import quoted
from penstock.errors import QueryError
from penstock.planner.dynamic.program import Incremental
from penstock.planner.dynamic.strategy import Choice, Sizes, by_keys_or_full
from penstock.values.tasks import WHOLE, Cost

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

KEYS = "penstock_keys"
MOST_KEYS = 1_000_000
MOST_KEY_BYTES = 64 * 2**20
MOST_APPENDED = 500
"""Files of a table from which on rows are no longer added in files of their own, but by their keys."""
_WHAT = "__penstock_what"
_KEPT, _OLD, _NEW = 0, 1, 2


def refresh(session: Session, job: RefreshJob, step: Step, storage: Storage | None = None) -> Staged:
    """The new rows of the table, or of the keys that changed; without Spark when no row of an input did."""
    began = time.monotonic()
    stored = snapshot(job.location, None, storage=storage)
    plan = plan_refresh(job, stored, storage)
    step("planned")
    if isinstance(plan, Nothing):
        step("staged")
        return _unchanged(job, stored, plan.choice, Cost(seconds=time.monotonic() - began))
    group = f"{job.task}/{job.attempt}"
    with _attempt(session, job, group) as attempt:
        refreshing = _Refreshing(attempt, job, stored, step, storage)
        match plan:
            case Everything(choice, program):
                staged = refreshing.everything(choice, program)
            case ByKeys():
                staged = refreshing.changed(plan)
            case _:
                assert_never(plan)
        reader = Reader(attempt.spark, storage)
        schema = plain_schema(staged.schema_json)
        warnings = check(attempt.spark, job, reader, files=staged.files, schema=schema, chunks=staged.chunks)
        cost = Cost(
            spark_jobs=attempt.jobs,
            rows_read=refreshing.rows_read,
            rows_written=sum(file.rows for file in staged.files),
            bytes_written=sum(file.size for file in staged.files),
            seconds=time.monotonic() - began,
            keys=refreshing.keys,
        )
    step("staged")
    return replace(staged, warnings=warnings, cost=cost)


def _unchanged(job: RefreshJob, stored: TableSnapshot | None, choice: Choice, cost: Cost) -> Staged:
    assert stored is not None  # noqa: S101  else everything had to be computed
    chunk = StagedChunk(WHOLE, _rows(stored.files), job.digests.get(WHOLE), changed=False)
    return Staged(
        job=job,
        base_version=stored.version,
        schema_json=stored.schema_json,
        files=(),
        kept=(),
        replaced=(),
        chunks=(chunk,),
        cost=cost,
        strategy=choice.strategy,
        strategy_reason=choice.words,
        on_base=True,
    )


@dataclass(slots=True)
class _Refreshing:
    """One attempt with its session."""

    attempt: Attempt
    job: RefreshJob
    stored: TableSnapshot | None
    step: Step
    storage: Storage | None
    rows_read: int = 0
    keys: int | None = None
    """How many keys are computed; None: all."""

    @property
    def spark(self) -> SparkSession:
        return self.attempt.spark

    def everything(self, choice: Choice, program: Incremental | None) -> Staged:
        """All rows; files replace all that are there."""
        job, stored = self.job, self.stored
        reader = Reader(self.spark, self.storage)
        planned = self._show(reader)
        self.rows_read = sum(plan.rows for plan in planned)
        frame = self.spark.sql(job.sql if program is None else program.full(job.now))
        schema = self._target(frame.schema, anew=choice.strategy == "reinitialize")
        rows = frame.selectExpr(*fitted(frame.schema, schema))
        size = _size(planned)
        order = self._order(program, schema)
        watched, observation = _watched(self._laid_out(rows, order, size), schema, {"new": "true"})
        files = self._write(watched)
        after = digest_of(observation.get, "new")
        live = () if stored is None else stored.files
        changed = self._differs(after, live)
        return self._staged(choice, schema, files=files, replaced=live, after=after, rows=after.rows, changed=changed)

    def changed(self, plan: ByKeys) -> Staged:
        """What follows from the rows that changed; everything, where Spark cannot run the programs for that.

        They look at rows that the query itself may filter out before it computes with them.
        """
        from pyspark.errors import (
            AnalysisException,
            ArithmeticException,
            ArrayIndexOutOfBoundsException,
            DateTimeException,
            NumberFormatException,
            SparkRuntimeException,
        )

        only = _only_added(plan, self.job, self.stored)
        try:
            return self.by_keys(plan) if only is None else self.appended(plan, *only)
        except (
            AnalysisException,
            ArithmeticException,
            ArrayIndexOutOfBoundsException,
            DateTimeException,
            NumberFormatException,
            SparkRuntimeException,
        ) as error:
            said = str(error).splitlines()[0][:200]
            choice = self._permitted(Choice("full", "PROGRAM_FAILED", f"Spark cannot follow the changed rows: {said}"))
            self.keys = None
            return self.everything(choice, plan.program)

    def appended(self, plan: ByKeys, view: str, change: FewRows) -> Staged:
        """The rows that follow from rows that came to one input; none of those that are stored is touched."""
        job, stored, program = self.job, self.stored, plan.program
        assert stored is not None  # noqa: S101
        reader = Reader(self.spark, self.storage)
        self._show(reader)
        ChangeViews(self.spark, reader, {read.view: read for read in job.reads}).show_added(view, change)
        sql = program.appended(frozenset((view,)))
        if sql is None:
            return _unchanged(job, stored, Choice("no_data", "NO_CHANGE", "no change reaches a row"), Cost())
        frame = self.spark.sql(sql)
        schema = plain_schema(stored.schema_json)
        rows = frame.selectExpr(*fitted(frame.schema, schema))
        watched, observation = _watched(rows.coalesce(1), schema, {"new": "true"})
        order = self._order(program, schema)
        files = self._write(watched.sortWithinPartitions(*map(quoted, order)) if order else watched)
        new = digest_of(observation.get, "new")
        before = job.digests.get(WHOLE)
        after = None if before is None else _moved(before, Digest(0, 0, 0), new)
        choice = Choice("append", "ONLY_NEW_ROWS", f"{new.rows} rows follow from the rows that were added")
        count = _rows(stored.files) + new.rows
        return self._staged(choice, schema, files=files, replaced=(), after=after, rows=count, changed=new.rows > 0)

    def by_keys(self, plan: ByKeys) -> Staged:
        """The rows of the keys that changed, in place of those that are stored of them."""
        job, stored, program = self.job, self.stored, plan.program
        assert stored is not None  # noqa: S101
        reader = Reader(self.spark, self.storage)
        planned = self._show(reader)
        views = ChangeViews(self.spark, reader, {read.view: read for read in job.reads}, self.storage)
        old = program.reads_old & plan.changes.keys()
        unreadable = views.unreadable(plan.changes, old, plan.before)
        if unreadable is not None:
            choice = Choice("reinitialize", unreadable.code, unreadable.reason)
            return self.everything(self._permitted(choice), program)
        views.show(plan.changes)
        for view in old:
            views.show_old(view, plan.before)
        sql = program.keys(frozenset(plan.changes), plan.before.now, job.now)
        keys = None if sql is None else self._keys(sql)
        if isinstance(keys, Choice):
            return self.everything(self._permitted(keys), program)
        if keys is None:
            return _unchanged(job, stored, Choice("no_data", "NO_CHANGE", "no change reaches a row"), Cost())
        self.step("keys found")
        touched = self._touched(program, keys, stored)
        hit = {plan_.read.view: self._hit(program, plan_, keys) for plan_ in planned}
        sizes = Sizes(
            keys=keys.num_rows,
            all_keys=_rows(stored.files),
            read_bytes=sum(file.size for files in hit.values() for file in files),
            input_bytes=sum(file.size for plan_ in planned for file in plan_.files),
            touched_bytes=sum(file.size for file in touched),
            table_bytes=sum(file.size for file in stored.files),
        )
        choice = by_keys_or_full(sizes, job.threshold, forced=job.strategy in ("affected_keys", "incremental"))
        if choice.strategy == "no_data":
            return _unchanged(job, stored, choice, Cost())
        if choice.strategy == "full":
            return self.everything(choice, program)
        narrowed = tuple(replace(plan_, files=hit[plan_.read.view]) for plan_ in planned)
        return self._rewritten(choice, program, keys, touched, narrowed)

    def _permitted(self, choice: Choice) -> Choice:
        if self.job.strategy in ("affected_keys", "incremental"):
            raise QueryError(
                f"{self.job.about}: it cannot be refreshed by its keys: {choice.words}",
                hint=f"penstock rerun {self.job.model} computes all of it once",
            )
        return choice

    def _show(self, reader: Reader) -> tuple[PlannedRead, ...]:
        planned = tuple(reader.planned(read) for read in self.job.reads)
        configure(self.spark, _size(planned))
        for plan in planned:
            reader.frame(plan).createOrReplaceTempView(plan.read.view)
        return planned

    def _keys(self, sql: str) -> pa.Table | Choice:
        """The keys that changed; a choice when there are too many to go by."""
        keys = collected(self.spark.sql(sql).limit(MOST_KEYS + 1), MOST_KEY_BYTES)
        if keys.num_rows > MOST_KEYS:
            return Choice("full", "MANY_KEYS", f"more than {MOST_KEYS} keys changed")
        return keys

    def _touched(self, program: Incremental, keys: pa.Table, stored: TableSnapshot) -> tuple[DataFile, ...]:
        """The files of the table that may hold a row with such a key."""
        spelled = {field.name.casefold(): field.name for field in plain_schema(stored.schema_json).fields}
        columns = {spelled[name.casefold()]: keys.column(number) for number, name in enumerate(program.key)}
        return holding(self.job.location, stored.version, stored.files, columns, self.storage)

    def _hit(self, program: Incremental, planned: PlannedRead, keys: pa.Table) -> tuple[DataFile, ...]:
        """The files of an input that may hold a row for such a key."""
        read = planned.read
        columns = {
            pushed.column: keys.column(pushed.key)
            for pushed in program.pushed
            if pushed.input == read.view and pushed.unit is None
        }
        if read.pin.snapshot is None or not columns:
            return planned.files
        return holding(read.pin.location, read.pin.snapshot, planned.files, columns, self.storage)

    def _rewritten(
        self,
        choice: Choice,
        program: Incremental,
        keys: pa.Table,
        touched: tuple[DataFile, ...],
        narrowed: Sequence[PlannedRead],
    ) -> Staged:
        job, stored = self.job, self.stored
        assert stored is not None  # noqa: S101
        reader = Reader(self.spark, self.storage)
        for plan in narrowed:
            reader.frame(plan).createOrReplaceTempView(plan.read.view)
        self.rows_read, self.keys = sum(plan.rows for plan in narrowed), keys.num_rows
        rows_as_view(self.spark, keys, KEYS)
        new = self.spark.sql(program.rows(job.now))
        schema = plain_schema(stored.schema_json)
        here = through_parquet(self.spark, job.location, schema, touched)
        held = self.spark.table(KEYS)
        equal = [here[quoted(name)].eqNullSafe(held[f"key_{number}"]) for number, name in enumerate(program.key)]
        match = reduce(lambda a, b: a & b, equal) if equal else None
        # the one row of an aggregate without groups has the empty key
        parts = (
            (here.limit(0) if match is None else here.join(held, match, "left_anti"), _KEPT),
            (here if match is None else here.join(held, match, "left_semi"), _OLD),
            (new.selectExpr(*fitted(new.schema, schema)), _NEW),
        )
        marked = [frame.selectExpr("*", f"{what} as {_WHAT}") for frame, what in parts]
        rows = reduce(lambda a, b: a.union(b), marked)
        size = sum(file.size for file in touched) + sum(plan.size or 0 for plan in narrowed)
        # watched once they are in order: to find their ranges Spark may run what lies below twice
        ordered = self._laid_out(rows, self._order(program, schema), size)
        sides = {"old": f"{_WHAT} = {_OLD}", "new": f"{_WHAT} = {_NEW}"}
        watched, observation = _watched(ordered, schema, sides, also=(_WHAT,))
        files = self._write(watched.filter(f"{_WHAT} <> {_OLD}").drop(_WHAT))
        old, fresh = (digest_of(observation.get, name) for name in ("old", "new"))
        before = job.digests.get(WHOLE)
        after = None if before is None else _moved(before, old, fresh)
        count = _rows(stored.files) - old.rows + fresh.rows
        changed = old != fresh or not job.deduplicate
        return self._staged(choice, schema, files=files, replaced=touched, after=after, rows=count, changed=changed)

    def _differs(self, after: Digest, live: Sequence[DataFile]) -> bool:
        """Whether all rows together are others than those that are stored."""
        job, stored = self.job, self.stored
        if stored is None or not job.deduplicate or _rows(live) != after.rows:
            return True
        # what was accepted may not be what lies there
        trusted = not job.asked and job.before is not None and job.before.snapshot == stored.version
        before = job.digests.get(WHOLE) if trusted else None
        return (self._stored_digest(stored) if before is None else before) != after

    def _stored_digest(self, stored: TableSnapshot) -> Digest:
        schema = plain_schema(stored.schema_json)
        rows = through_parquet(self.spark, self.job.location, schema, stored.files)
        hash_a, hash_b = hash_columns(schema)
        hashed = rows.selectExpr(f"{hash_a} as {HASH_A}", f"{hash_b} as {HASH_B}")
        (row,) = hashed.selectExpr(*sums("true", "all")).collect()
        return digest_of(row.asDict(), "all")

    def _target(self, new: StructType, *, anew: bool) -> StructType:
        """The table's columns: as they are where the rows fit, as the query gives them where all is made anew."""
        known = None if self.stored is None else plain_schema(self.stored.schema_json)
        schema = target_schema(new, known, self.job.add_columns)
        if known is not None and not anew and not fits(known, schema):
            raise QueryError(
                f"{self.job.about}: the columns of the query do not fit the table", hint="rebuild the model"
            )
        return schema

    def _order(self, program: Incremental | None, schema: StructType) -> tuple[str, ...]:
        """What the rows are sorted by in their files: so that few of them hold a key."""
        from pyspark.sql.types import MapType

        kinds = {field.name.casefold(): field for field in schema.fields}
        wanted = [*self.job.cluster_by, *(() if program is None else program.key)]
        names = [kinds[name.casefold()].name for name in wanted if name.casefold() in kinds]
        return tuple(name for name in dict.fromkeys(names) if not isinstance(kinds[name.casefold()].dataType, MapType))

    def _laid_out(self, rows: DataFrame, order: Sequence[str], size: int | None) -> DataFrame:
        names = [quoted(name) for name in order]
        large = size is None or size > SMALL_BYTES
        if not names:
            return rows if large else rows.coalesce(1)
        spread = rows.repartitionByRange(*names) if large else rows.coalesce(1)
        return spread.sortWithinPartitions(*names)

    def _write(self, rows: DataFrame) -> tuple[StagedFile, ...]:
        files = written((rows,), self.job, self._folder(), self.storage)
        self.step("written")
        return files

    def _folder(self) -> str:
        """One that is not there yet: an attempt may write more than once, and every file in it counts."""
        first = folder = f"{self.job.task}/{self.job.attempt}"
        number = 0
        while self._is_there(folder):
            number += 1
            folder = f"{first}-{number}"
        return folder

    def _is_there(self, folder: str) -> bool:
        filesystem, inside = place(self.job.location, folder, self.storage)
        return bool(filesystem.get_file_info(inside).type != FileType.NotFound)

    def _staged(
        self,
        choice: Choice,
        schema: StructType,
        *,
        files: tuple[StagedFile, ...],
        replaced: Sequence[DataFile],
        after: Digest | None,
        rows: int,
        changed: bool,
    ) -> Staged:
        return Staged(
            job=self.job,
            base_version=None if self.stored is None else self.stored.version,
            schema_json=schema.json(),
            files=files,
            kept=(),
            replaced=tuple(file.path for file in replaced),
            chunks=(StagedChunk(WHOLE, rows, after, changed),),
            strategy=choice.strategy,
            strategy_reason=choice.words,
            on_base=True,
        )


def _only_added(plan: ByKeys, job: RefreshJob, stored: TableSnapshot | None) -> tuple[str, FewRows] | None:
    """The one input of which rows were only added, where that only adds rows to the table; with its view."""
    if not plan.program.monotone or job.timed or job.strategy == "affected_keys" or len(plan.changes) != 1:
        return None
    if stored is None or len(stored.files) >= MOST_APPENDED:
        return None
    ((view, change),) = plan.changes.items()
    return (view, change) if isinstance(change, FewRows) and change.inserts_only else None


@contextmanager
def _attempt(session: Session, job: RefreshJob, group: str) -> Iterator[Attempt]:
    with (
        session.attempt(group, job.model, job.timeout_seconds) as attempt,
        translating(attempt, job.about, job.timeout_seconds),
    ):
        yield attempt


def _watched(
    rows: DataFrame, schema: StructType, conditions: Mapping[str, str], also: Sequence[str] = ()
) -> tuple[DataFrame, Observation]:
    """The same rows; what those that meet each condition add up to is known once they are written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    hash_a, hash_b = hash_columns(schema)
    hashed = rows.selectExpr("*", f"{hash_a} as {HASH_A}", f"{hash_b} as {HASH_B}")
    metrics = [metric for name, condition in conditions.items() for metric in sums(condition, name)]
    observation = Observation()
    seen = hashed.observe(observation, *(f.expr(metric) for metric in metrics))
    return seen.select(*map(quoted, (*schema.names, *also))), observation


def _moved(before: Digest, old: Digest, new: Digest) -> Digest:
    """What all rows add up to once some are others."""
    return Digest(
        before.rows - old.rows + new.rows,
        before.sum_a - old.sum_a + new.sum_a,
        before.sum_b - old.sum_b + new.sum_b,
    )


def _rows(files: Sequence[DataFile]) -> int:
    return sum(file.rows or 0 for file in files)


def _size(planned: Sequence[PlannedRead]) -> int | None:
    sizes = [plan.size for plan in planned]
    return None if None in sizes else sum(size for size in sizes if size is not None)
