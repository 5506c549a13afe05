"""Do the stored rows equal a recomputation from scratch?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import assert_never
from uuid import UUID

from penstock.engine.stage.compare import Comparison
from penstock.errors import AttemptError, SourceError
from penstock.planner.change.reach import gone
from penstock.project.templates.names import varying
from penstock.project.templates.templates import names_used
from penstock.runtime.observe.audit import OwnTable, unseen_commits
from penstock.runtime.place.workspace import Workspace, applied
from penstock.runtime.work.jobs import ChunksAtInputs, job, readable
from penstock.runtime.work.refreshes import refresh_job
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, Interval, IntervalSet
from penstock.values.models import DynamicModel, IntervalModel
from penstock.values.records import CoverRecord, Generation, StateView
from penstock.values.tasks import WHOLE, Frontier, Order, Pin

BATCH_CHUNKS = 32
SAMPLES = 5
_NO_TASK = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Verified:
    """What verifying some models found."""

    models: list[ModelVerification]

    @property
    def differences(self) -> int:
        return sum(model.differences for model in self.models)

    def as_json(self) -> dict[str, object]:
        return {"models": [model.as_json() for model in self.models], "differences": self.differences}


@dataclass(slots=True)
class ModelVerification:
    """What verifying one model found."""

    name: str
    rows_stored: int = 0
    rows_expected: int = 0
    missing: int = 0
    unexpected: int = 0
    wrong: list[Interval] = field(default_factory=list)
    behind: list[Interval] = field(default_factory=list)
    unverifiable: list[tuple[Interval, str]] = field(default_factory=list)
    strays: int = 0
    """Rows outside the covered ranges."""
    samples: list[dict[str, object]] = field(default_factory=list)
    unseen: list[int] = field(default_factory=list)
    """Newer snapshots of other programs, which are not compared: they were not audited yet."""

    @property
    def differences(self) -> int:
        return len(self.wrong) + len(self.behind) + self.strays + len(self.unseen)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "rows_stored": self.rows_stored,
            "rows_expected": self.rows_expected,
            "missing": self.missing,
            "unexpected": self.unexpected,
            "wrong": _pairs(self.wrong),
            "behind": _pairs(self.behind),
            "strays": self.strays,
            "unverifiable": [[[i.start, i.end], why] for i, why in self.unverifiable],
            "samples": self.samples,
            "unseen_snapshots": self.unseen,
        }


def verify(
    workspace: Workspace, models: tuple[IntervalModel | DynamicModel, ...], start: int | None, end: int | None
) -> Verified:
    """Recompute what is stored, interval models at the snapshots that are known now, and compare as multisets."""
    view = workspace.state.views.whole()
    applied(workspace, view)
    return Verified([_model(workspace, view, model, start, end) for model in models])


def _model(
    workspace: Workspace, view: StateView, model: IntervalModel | DynamicModel, start: int | None, end: int | None
) -> ModelVerification:
    match model:
        case IntervalModel():
            return _interval_model(workspace, view, model, start, end)
        case DynamicModel():
            return _dynamic_model(workspace, view, model)
        case _:
            assert_never(model)


def _dynamic_model(workspace: Workspace, view: StateView, model: DynamicModel) -> ModelVerification:
    """Its rows against the query at the snapshots and the moment that they were made from."""
    verification = ModelVerification(model.name)
    generation, record = view.current.get(model.name), view.refreshed.get(model.name)
    if generation is None or generation.accepted_snapshot is None or record is None:
        return verification
    if generation.no != view.working[model.name].no:
        verification.unverifiable.append((WHOLE, "it is being rebuilt"))
        return verification
    expected = refresh_job(
        workspace.resolver, view, model, record.inputs, generation=generation, task=_NO_TASK, attempt=0
    )
    expected = replace(expected, now=record.data_timestamp or view.at)
    try:
        comparison = workspace.engine.questions.compare_whole(expected, generation.accepted_snapshot)
    except (AttemptError, SourceError) as error:
        verification.unverifiable.append((WHOLE, error.message))
        return verification
    verification.rows_stored, verification.rows_expected = comparison.rows_stored, comparison.rows_expected
    verification.missing, verification.unexpected = comparison.missing, comparison.unexpected
    verification.samples.extend(comparison.samples)
    if comparison.differing:
        verification.wrong.append(WHOLE)
    return verification


def _interval_model(
    workspace: Workspace, view: StateView, model: IntervalModel, start: int | None, end: int | None
) -> ModelVerification:
    verification = ModelVerification(model.name)
    generation = view.current.get(model.name)
    if generation is None or generation.accepted_snapshot is None:
        return verification
    low = MIN_POSITION if start is None else start
    high = MAX_POSITION if end is None else end
    scope = generation.covered.within(low, high)
    records = workspace.state.history.covers(generation.no, scope)
    if generation.no == view.working[model.name].no:  # else the next look is at the table that is being built
        table = OwnTable(model, generation, generation.accepted_snapshot)
        verification.unseen = unseen_commits(workspace.resolver, workspace.state.generations, table)
    if unsteady := varying(names_used(model.sql), "never", "bounds"):
        why = f"the query uses {unsteady[0]}, so its rows may differ at every run"
        verification.unverifiable += [(record.interval, why) for record in records]
        return verification
    check = _Check(workspace, view, model, generation, generation.accepted_snapshot)
    expired = gone(workspace.project.graph, view, model)
    compared = []
    for record in records:
        if expired.within(record.interval.start, record.interval.end):
            verification.unverifiable.append((record.interval, "its source rows have expired"))
        else:
            compared.append(record)
    for batch in _batches(tuple(compared), model):
        check.examine(batch, verification)
    check.find_strays(generation.covered.complement().within(low, high), verification)
    return verification


def _batches(records: tuple[CoverRecord, ...], model: IntervalModel) -> Iterator[tuple[CoverRecord, ...]]:
    """Records that used the same inputs, as many at a time as one query takes.

    One that was partly replaced is computed alone: its query is that of the whole chunk.
    """
    groups: dict[tuple[str, ...], list[CoverRecord]] = {}
    for record in records:
        if record.left.covers(record.interval):
            groups.setdefault(_choices(model, record.frontier), []).append(record)
        else:
            yield (record,)
    most = 1024 if model.widens else BATCH_CHUNKS
    for group in groups.values():
        rest = iter(group)
        while batch := tuple(islice(rest, most)):
            yield batch


def _choices(model: IntervalModel, frontier: Frontier) -> tuple[str, ...]:
    """The member of each group that an attempt read, by what its frontier names."""
    return tuple(
        next((member.model for member in group if member.model in frontier), "") for group in model.dependencies
    )


@dataclass(frozen=True, slots=True)
class _Check:
    """One model under examination."""

    workspace: Workspace
    view: StateView
    model: IntervalModel
    generation: Generation
    snapshot: int

    def examine(self, batch: tuple[CoverRecord, ...], verification: ModelVerification) -> None:
        """Compare some intervals with what their inputs give now, and classify those that differ."""
        try:
            comparison = self._compare(batch, {})
        except (AttemptError, SourceError) as error:
            for record in batch if len(batch) > 1 else ():
                self.examine((record,), verification)
            if len(batch) == 1:
                verification.unverifiable.append((batch[0].interval, error.message))
            return
        verification.rows_stored += comparison.rows_stored
        verification.rows_expected += comparison.rows_expected
        verification.missing += comparison.missing
        verification.unexpected += comparison.unexpected
        verification.samples.extend(comparison.samples[: SAMPLES - len(verification.samples)])
        for record in batch:
            if any(part in comparison.differing for part in _parts(record)):
                self._classify(record, verification)

    def find_strays(self, outside: IntervalSet, verification: ModelVerification) -> None:
        """Rows where nothing was ever computed: another program wrote them."""
        pin = Pin(self.generation.location, self.snapshot, None, str(self.generation.id))
        strays = self.workspace.engine.questions.count_rows(
            self.workspace.resolver.reading("", self.model.name, pin, outside)
        )
        if strays:
            verification.strays += strays
            verification.rows_stored += strays
            verification.unexpected += strays

    def _classify(self, record: CoverRecord, verification: ModelVerification) -> None:
        """An interval that differs now: wrong, or only behind what its inputs have become?"""
        try:
            then = self._compare((record,), record.frontier)
        except (AttemptError, SourceError) as error:
            verification.unverifiable.append((record.interval, error.message))
            return
        (verification.wrong if then.differing else verification.behind).append(record.interval)

    def _compare(self, batch: tuple[CoverRecord, ...], then: Frontier) -> Comparison:
        """The stored rows against the query at the inputs of `then`; at what is known now for those not in it."""
        resolver, chunks = self.workspace.resolver, tuple(record.interval for record in batch)
        order = Order(self.model.name, "repair", chunks, _choices(self.model, batch[0].frontier), "verify")
        wanted = ChunksAtInputs(order=order, pins={**readable(resolver, order, self.view, serving=True), **then}, now=0)
        expected = job(self.workspace.resolver, wanted, self.generation, task=_NO_TASK, attempt=0, digests={})
        compared = tuple(part for record in batch for part in _parts(record))
        return self.workspace.engine.questions.compare(replace(expected, chunks=compared), self.snapshot)


def _parts(record: CoverRecord) -> tuple[Interval, ...]:
    """What is compared: the chunk itself, or what is left of it."""
    return (record.interval,) if record.left.covers(record.interval) else record.left.parts


def _pairs(intervals: list[Interval]) -> list[list[int]]:
    return [[part.start, part.end] for part in IntervalSet.of(intervals)]
