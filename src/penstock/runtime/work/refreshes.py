"""What is the engine asked to do to refresh a dynamic table, and what does that read?"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from penstock.engine.values.job import Digest, InputRead, RefreshedFrom, RefreshJob
from penstock.errors import QueryError
from penstock.planner.observations import Observations
from penstock.project import RefUse, render_dynamic
from penstock.runtime.place.table_resolver import TableResolver
from penstock.values.models import DynamicModel
from penstock.values.records import Generation, StateView
from penstock.values.tasks import WHOLE, Frontier


@dataclass(slots=True)
class Inputs:
    """Hands out one view for each table that a query reads."""

    resolver: TableResolver
    model: DynamicModel
    pins: Frontier
    reads: dict[str, InputRead] = field(default_factory=dict)

    def read(self, use: RefUse) -> InputRead:
        if use.model not in self.reads:
            pin = self.pins.get(use.model)
            if pin is None:
                raise QueryError(
                    f"{self.model.name} reads {use.model}, which has no table yet",
                    hint=f"penstock explain {use.model} says what it waits for",
                )
            view = f"penstock_in_{len(self.reads)}"
            self.reads[use.model] = self.resolver.reading(view, use.model, pin)
        return self.reads[use.model]


def query_at(resolver: TableResolver, model: DynamicModel, pins: Frontier) -> tuple[str, tuple[InputRead, ...]]:
    """The query of a dynamic table, and what it reads at these snapshots."""
    inputs = Inputs(resolver, model, pins)
    sql = render_dynamic(model, resolver.project, lambda use: inputs.read(use).view)
    return sql, tuple(inputs.reads.values())


def refresh_job(
    resolver: TableResolver,
    view: StateView,
    model: DynamicModel,
    pins: Frontier,
    *,
    generation: Generation,
    task: UUID,
    attempt: int,
    digest: Digest | None = None,
) -> RefreshJob:
    """What the engine is to do; `digest` is what all stored rows add up to, if that is known."""
    sql, reads = query_at(resolver, model, pins)
    record = view.refreshed.get(model.name)
    before = None
    if record is not None and generation.covered and generation.accepted_snapshot is not None:
        stored = {name: resolver.located(pin) for name, pin in record.inputs.items()}
        before = RefreshedFrom(generation.accepted_snapshot, stored, record.data_timestamp or view.at)
    observations = Observations(resolver.graph, view)
    parents = resolver.graph.parents(model.name)
    moments = [observations.moment(parent, pins[parent]) for parent in parents if parent in pins]
    known = [moment for moment in moments if moment is not None]
    return RefreshJob(
        model=model.name,
        location=resolver.table(generation.location),
        chunks=(WHOLE,),
        frontier=pins,
        task=task,
        attempt=attempt,
        generation=str(generation.id),
        epoch=generation.epoch,
        cluster_by=model.cluster_by,
        checks=model.checks,
        deduplicate=model.deduplicate,
        digests={} if digest is None else {WHOLE: digest},
        add_columns=model.on_schema_change == "add_columns",
        timeout_seconds=model.timeout_seconds,
        file=model.file,
        sql=sql,
        reads=reads,
        now=min(known, default=view.at),
        before=before,
        strategy=model.refresh_strategy,
        threshold=model.cardinality_threshold,
        key=model.key,
        asked=bool(generation.stale),
        timed=model.timed,
    )
