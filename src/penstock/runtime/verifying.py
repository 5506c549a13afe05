"""Do the stored rows equal a recomputation from scratch?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from penstock.engine.compare import Comparison
from penstock.errors import EngineError, QueryError, SourceError
from penstock.intervals import MAX_POSITION, MIN_POSITION, Interval, IntervalSet
from penstock.models import IntervalModel
from penstock.runtime.jobs import described
from penstock.runtime.places import pin
from penstock.runtime.workspace import Workspace
from penstock.state.records import CoverRecord, Generation, World
from penstock.tasks import Frontier, Order

BATCH_CHUNKS = 32
_NO_TASK = UUID(int=0)


@dataclass(slots=True)
class ModelVerdict:
    """What verifying one model found."""

    name: str
    rows_stored: int = 0
    rows_expected: int = 0
    missing: int = 0
    unexpected: int = 0
    wrong: list[Interval] = field(default_factory=list)
    behind: list[Interval] = field(default_factory=list)
    unverifiable: list[tuple[Interval, str]] = field(default_factory=list)
    samples: list[dict[str, object]] = field(default_factory=list)

    @property
    def differences(self) -> int:
        return len(self.wrong) + len(self.behind)


def verify(
    workspace: Workspace, models: tuple[IntervalModel, ...], start: int | None, end: int | None
) -> list[ModelVerdict]:
    """Recompute every covered interval at the snapshots that are known now and compare as bags."""
    world = workspace.state.world()
    return [_model(workspace, world, model, start, end) for model in models]


def _model(
    workspace: Workspace, world: World, model: IntervalModel, start: int | None, end: int | None
) -> ModelVerdict:
    verdict = ModelVerdict(model.name)
    generation = world.current.get(model.name)
    if generation is None or generation.accepted_snapshot is None:
        return verdict
    low = MIN_POSITION if start is None else start
    high = MAX_POSITION if end is None else end
    scope = generation.covered.within(low, high)
    records = workspace.state.covers(generation.no, scope)
    for batch in _batches(records, model):
        _verify_batch(workspace, world, model, generation, batch, verdict)
    return verdict


def _batches(records: tuple[CoverRecord, ...], model: IntervalModel) -> Iterator[tuple[CoverRecord, ...]]:
    """Records that used the same inputs, as many at a time as one query takes."""
    groups: dict[tuple[str, ...], list[CoverRecord]] = {}
    for record in records:
        groups.setdefault(_choices(model, record.frontier), []).append(record)
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


def _verify_batch(
    workspace: Workspace,
    world: World,
    model: IntervalModel,
    generation: Generation,
    batch: tuple[CoverRecord, ...],
    verdict: ModelVerdict,
) -> None:
    choices = _choices(model, batch[0].frontier)
    chunks = tuple(record.interval for record in batch)
    now = {name: held for name in choices if name and (held := pin(name, workspace.project.graph, world, serving=True))}
    found = _compare(workspace, model, generation, chunks, choices, now)
    verdict.rows_stored += found.rows_stored
    verdict.rows_expected += found.rows_expected
    verdict.missing += found.missing
    verdict.unexpected += found.unexpected
    verdict.samples.extend(found.samples[: 5 - len(verdict.samples)])
    for record in batch:
        if record.interval in found.differing:
            _judge(workspace, model, generation, record, verdict)


def _judge(
    workspace: Workspace, model: IntervalModel, generation: Generation, record: CoverRecord, verdict: ModelVerdict
) -> None:
    """An interval that differs now: wrong, or only behind what its inputs have become?"""
    try:
        then = _compare(
            workspace, model, generation, (record.interval,), _choices(model, record.frontier), record.frontier
        )
    except (EngineError, QueryError, SourceError) as error:
        verdict.unverifiable.append((record.interval, error.message))
        return
    (verdict.wrong if then.differing else verdict.behind).append(record.interval)


def _compare(
    workspace: Workspace,
    model: IntervalModel,
    generation: Generation,
    chunks: tuple[Interval, ...],
    choices: tuple[str, ...],
    frontier: Frontier,
) -> Comparison:
    expected = described(
        Order(model.name, "repair", chunks, choices, "verify"),
        model,
        generation,
        workspace.project,
        workspace.places,
        frontier,
        task_start=0,
        task=_NO_TASK,
        attempt=0,
        digests={},
    )
    assert generation.accepted_snapshot is not None  # noqa: S101
    return workspace.engine.compare(expected, generation.accepted_snapshot)


def verify_rows(verdicts: list[ModelVerdict]) -> list[dict[str, object]]:
    return [
        {
            "name": v.name,
            "rows_stored": v.rows_stored,
            "rows_expected": v.rows_expected,
            "missing": v.missing,
            "unexpected": v.unexpected,
            "wrong": _pairs(v.wrong),
            "behind": _pairs(v.behind),
            "unverifiable": [[[i.start, i.end], why] for i, why in v.unverifiable],
            "samples": v.samples,
        }
        for v in verdicts
    ]


def _pairs(intervals: list[Interval]) -> list[list[int]]:
    return [[part.start, part.end] for part in IntervalSet.of(intervals)]
