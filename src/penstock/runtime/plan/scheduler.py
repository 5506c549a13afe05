"""How does work get planned while a process stays up?"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, assert_never

from penstock.engine.values.job import Step
from penstock.errors import ConflictError, PenstockError, StateError
from penstock.planner.dynamic.refresh import refresh, waits_until
from penstock.planner.observations import Observations
from penstock.planner.policy.triggers import Due, Triggers
from penstock.planner.policy.watching import gathered_at
from penstock.planner.readiness.observation import Observation
from penstock.planner.readiness.plan import plan
from penstock.runtime.observe.audit import Audited, AuditState, StillLooking
from penstock.runtime.observe.sources import NeedsSpark, Seen, SourceObservation, keep
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import no_step
from penstock.runtime.plan.reconcile import reconcile
from penstock.runtime.process.containment import contained
from penstock.runtime.process.logs import log
from penstock.runtime.process.metrics import Metrics
from penstock.state.queue.schedules import due_slots
from penstock.state.store import State
from penstock.values.intervals import IntervalSet
from penstock.values.models import DynamicModel, IntervalModel
from penstock.values.records import Slot, StateView, Work
from penstock.values.tasks import Lane, Order

LONGEST_PAUSE_SECONDS = 5.0
"""Workers that vanish send no notification: their tasks are looked for this often."""
AUDIT_SECONDS = 0.05
"""How long a round may look at our own tables."""
FORWARD_PAUSE_SECONDS = 10.0
"""A model that takes new rows as they come is planned at most this often."""


class SourceWatcher(Protocol):
    """What a scheduler asks of the tables themselves."""

    def periods(self, resolver: TableResolver, view: StateView) -> Mapping[str, float]:
        """How soon after the last look each source may be looked at again; left out: there is no need."""

    def look(self, resolver: TableResolver, names: Collection[str], view: StateView) -> Iterable[Seen]:
        """What there is to say of sources: of these as they are now, or of others that were asked for before."""

    def audit(self, resolver: TableResolver, state: AuditState, view: StateView) -> Iterable[Audited]:
        """Judge what others wrote into our tables, one after the other; why one could not be looked at."""


@dataclass(slots=True)
class Scheduler:
    """Rounds of looking and planning. What it remembers only saves work: any number may run, and any may vanish."""

    state: State
    revisions: Revisions
    watcher: SourceWatcher
    metrics: Metrics
    step: Step = no_step
    own_worker: str | None = None
    """The worker that shares this process: it is alive, whatever became of its connection."""
    _triggers: Triggers = field(default_factory=Triggers)
    _later: Due = field(default_factory=dict)
    """Lanes that were due and had to wait: repairs for more to come, new rows for their pace."""
    _later_seconds: float = 1.0
    """How long the first of them has to wait."""
    _full: Due = field(default_factory=dict)
    """Lanes that were due while their last orders were unclaimed."""
    _forward_at: dict[str, datetime] = field(default_factory=dict)
    _repaired_at: dict[str, datetime] = field(default_factory=dict)
    """By model: when that lane was last ordered."""
    _refresh_at: datetime | None = None
    """When the target lag of the first dynamic table that waits for that makes it due."""
    _idle: dict[str, tuple[Observation, set[Lane]]] = field(default_factory=dict)
    """By model: what was seen, and which lanes were asked, when nothing was ordered. Plans follow from that alone."""
    _audited: datetime | None = None
    _auditing: Iterator[Audited] | None = None
    _audit_waits: bool = False
    """For threads that look: they wake the scheduler up."""

    def round(self) -> float:
        """Look, reconcile, plan; how many seconds the next round may wait when nothing wakes it up."""
        began = time.monotonic()
        view = self.state.views.whole()
        resolver = self.revisions.resolver(view, self.state.projects)
        if resolver is None:
            return LONGEST_PAUSE_SECONDS
        self._look(resolver, view)
        view = self._reconciled(resolver)
        if view.revision != resolver.project.revision:
            return 0.0
        slots = due_slots(view.schedules, view.at)
        due = self._due(resolver, view, slots)
        try:
            self._enqueue(resolver, view, due, slots)
        except PenstockError:
            self._later = due  # what called for them is not seen a second time
            raise
        self._audit(resolver, view)
        self.metrics.saw(view)
        self.metrics.round_ended(time.monotonic() - began)
        return self._pause(resolver, view)

    def _look(self, resolver: TableResolver, view: StateView) -> None:
        names = self.state.sources.claim_looks(self.watcher.periods(resolver, view))
        for seen in self.watcher.look(resolver, names, view):
            match seen:
                case SourceObservation():
                    self._keep(seen, view)
                case NeedsSpark(model):
                    self.state.sources.ask_scan([model])
                case _:
                    assert_never(seen)

    def _keep(self, observation: SourceObservation, view: StateView) -> None:
        record, known = observation.record, view.sources.get(observation.record.model)
        keep(self.state.sources, observation)
        self.metrics.looked(record.model, record.error is None)
        if record.error is not None and (known is None or known.error != record.error):
            log("source_error", "warning", model=record.model, error=record.error)
        if (record.ignored_rows, record.ignored_since) != (
            observation.known.ignored_rows,
            observation.known.ignored_since,
        ):
            log("late_rows_ignored", "warning", model=record.model, rows=record.ignored_rows, below=record.expired_pos)
        self.step("looked")

    def _reconciled(self, resolver: TableResolver) -> StateView:
        reconciled = reconcile(self.state, resolver, own_worker=self.own_worker, step=self.step)
        self.step("settled")
        if reconciled.reaped:
            log("tasks_reaped", "warning", tasks=reconciled.reaped)
        if reconciled.took_over:
            log("took_over", models=",".join(reconciled.took_over))
        return reconciled.view

    def _due(self, resolver: TableResolver, view: StateView, slots: Iterable[Slot]) -> Due:
        settings = resolver.project.settings.scheduler
        fired = [(slot.model, slot.lane) for slot in slots if slot.model in resolver.graph.models]
        due = self._triggers.due(resolver.graph, view, fired, settings.sweep_seconds)
        for name, lanes in (*self._later.items(), *self._full.items()):
            due.setdefault(name, set()).update(lanes)
        self._later, self._full, self._later_seconds = {}, {}, 1.0
        return due

    def _enqueue(self, resolver: TableResolver, view: StateView, due: Due, slots: tuple[Slot, ...]) -> None:
        observations = Observations(resolver.graph, view)
        orders: list[Order] = []
        for name, lanes in due.items():
            model = resolver.graph.models.get(name)
            if isinstance(model, IntervalModel):
                orders += self._contained_orders(
                    model.name, partial(self._orders, resolver, observations, model, lanes)
                )
        self._refresh_at = None
        for dynamic in resolver.graph.dynamic_models:
            orders += self._contained_orders(dynamic.name, partial(self._refreshes, observations, dynamic))
        if not orders and not slots:
            return
        self.step("ordered")
        generations = {name: generation.no for name, generation in view.working.items()}
        added = self.state.queue.enqueue(orders, generations, slots)
        self.step("enqueued")
        for slot in slots:
            self.metrics.slot_fired(slot)
        if added:
            self.metrics.enqueued(orders)
            log("enqueued", tasks=added, models=",".join(sorted({order.model for order in orders})))

    def _contained_orders(self, name: str, orders: Callable[[], Iterable[Order]]) -> list[Order]:
        """One model that cannot be planned does not keep the others from it; the next sweep tries it again."""
        try:
            return list(orders())
        except (StateError, ConflictError):
            raise
        except BaseException as error:
            failure = contained(error, model=name)
            self.metrics.error("planner", error)
            log("planning_failed", "error", model=name, error=failure.message)
            return []

    def _orders(
        self, resolver: TableResolver, observations: Observations, model: IntervalModel, lanes: set[Lane]
    ) -> Iterator[Order]:
        """A lane whose last orders are unclaimed gets no more: slow workers make no longer queue."""
        view, name = observations.view, model.name
        full = lanes & view.work.get(name, Work()).waiting
        if full:
            self._full[name] = full
        wanted = lanes - full
        if "forward" in wanted and self._too_soon(model, view.at):
            wanted.discard("forward")
            self._later.setdefault(name, set()).add("forward")
            self._later_seconds = min(self._later_seconds, 1.0)
        if not wanted:
            return
        seen = observations.observation(model)
        if self._idle.get(name) == (seen, wanted):
            return
        began = time.monotonic()
        decisions = plan(seen, lanes=wanted)
        orders = [decision for decision in decisions if isinstance(decision, Order)]
        if orders:
            self._idle.pop(name, None)
        else:
            self._idle[name] = (seen, wanted)
        self.metrics.checked("ready" if orders else "waiting", time.monotonic() - began)
        if "backfill" in wanted:
            self.metrics.planned(name, decisions)
        repairs = IntervalSet.of(chunk for order in orders if order.lane == "repair" for chunk in order.chunks)
        if repairs and (wait := self._gathers(resolver, view, name, repairs)) > 0:
            orders = [order for order in orders if order.lane != "repair"]
            self._later.setdefault(name, set()).add("repair")
            self._later_seconds = min(self._later_seconds, wait)
        for lane, times in (("forward", self._forward_at), ("repair", self._repaired_at)):
            if any(order.lane == lane for order in orders):
                times[name] = view.at
        yield from orders

    def _refreshes(self, observations: Observations, model: DynamicModel) -> list[Order]:
        seen = observations.refresh(model)
        decision = refresh(seen)
        due = waits_until(seen)
        if due is not None and (self._refresh_at is None or due < self._refresh_at):
            self._refresh_at = due
        return [decision] if isinstance(decision, Order) else []

    def _gathers(self, resolver: TableResolver, view: StateView, name: str, repairs: IntervalSet) -> float:
        """How long repairs wait: what changes once often changes again, unless a person or a parent asks."""
        reopened = self.state.reopenings.since(view.working[name].no, repairs)
        if reopened is None or not reopened.gathers:
            return 0.0
        most = resolver.project.settings.scheduler.repair_delay_seconds
        repair_due = gathered_at(reopened.since, reopened.latest, self._repaired_at.get(name), most)
        return (repair_due - view.at).total_seconds()

    def _too_soon(self, model: IntervalModel, now: datetime) -> bool:
        last = self._forward_at.get(model.name)
        paced = model.interval.min == 0 and model.schedules.forwardfill is None
        return paced and last is not None and now - last < timedelta(seconds=FORWARD_PAUSE_SECONDS)

    def _audit(self, resolver: TableResolver, view: StateView) -> None:
        """Once per sweep, a few tables in every round: planning does not wait for all of them."""
        if self._auditing is None and _passed(
            self._audited, view.at, resolver.project.settings.scheduler.sweep_seconds
        ):
            self._audited = view.at
            self._auditing = iter(self.watcher.audit(resolver, self.state, view))
            self.metrics.saw_workers(self.state.workers.alive())
        until, self._audit_waits = time.monotonic() + AUDIT_SECONDS, False
        while self._auditing is not None and not self._audit_waits and time.monotonic() < until:
            try:
                problem = next(self._auditing)
            except StopIteration:
                self._auditing = None
            else:
                self._audit_waits = isinstance(problem, StillLooking)
                if isinstance(problem, str):
                    log("audit", "warning", found=problem)

    def _pause(self, resolver: TableResolver, view: StateView) -> float:
        settings = resolver.project.settings.scheduler
        slots = [(schedule.next_at - view.at).total_seconds() for schedule in view.schedules]
        looks = [source.incremental_scan_seconds for source in resolver.graph.sources]
        waits = [LONGEST_PAUSE_SECONDS, self._triggers.seconds_to_sweep(view.at, settings.sweep_seconds)]
        working = self._auditing is not None and not self._audit_waits
        later = [0.0] if working else [self._later_seconds] if self._later else []
        refreshes = [(self._refresh_at - view.at).total_seconds()] if self._refresh_at is not None else []
        return max(min([*waits, *slots, *looks, *later, *refreshes]), 0.0)


def _passed(last: datetime | None, now: datetime, seconds: float) -> bool:
    return last is None or now - last >= timedelta(seconds=seconds)
