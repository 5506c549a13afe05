"""What does a process count for Prometheus?"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from penstock.planner.readiness.observation import Wait
from penstock.runtime.process.progress import Finished
from penstock.values.records import Slot, StateView, Work, WorkerRecord
from penstock.values.tasks import Order

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
Readiness = Literal["ready", "waiting"]
Series = dict[tuple[str, ...], float]
"""A value for each combination of labels."""

_NAMESPACE = "penstock"
_TASK_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_ROUND_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_CHECK_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    """The counters and gauges of one process; every method may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._seen = _Seen(clock)
        self.registry.register(self._seen)
        self._tasks = self._counter("tasks_total", "Attempts that ended here.", "model", "lane", "status")
        self._task_seconds = self._histogram("task_seconds", "How long attempts took here.", _TASK_SECONDS, "model")
        self._enqueued = self._counter("tasks_enqueued_total", "Tasks that were planned here.", "model", "lane")
        self._pruned = self._counter("tasks_pruned_total", "Old tasks that were removed here.")
        self._checks = self._counter(
            "readiness_checks_total", "How often a model was asked whether something can be done now.", "result"
        )
        self._check_seconds = self._histogram(
            "readiness_check_seconds", "How long such an answer took.", _CHECK_SECONDS
        )
        self._errors = self._counter("errors_total", "Errors, by where and by class.", "component", "type")
        self._looks = self._counter("source_looks_total", "Observations of a source.", "model", "result")
        self._slots = self._counter("schedule_slots_total", "Slots of schedules that fired here.", "model", "lane")
        self._rounds = self._histogram("round_seconds", "How long a round of the scheduler took.", _ROUND_SECONDS)

    def text(self) -> bytes:
        """Everything in the text format that Prometheus reads."""
        return generate_latest(_Plain(self.registry))

    # what happened

    def task_ended(self, result: Finished) -> None:
        order = result.order
        self._tasks.labels(order.model, order.lane, result.outcome).inc()
        self._task_seconds.labels(order.model).observe(result.seconds)

    def enqueued(self, orders: Iterable[Order]) -> None:
        for (model, lane), count in Counts((order.model, order.lane) for order in orders).items():
            self._enqueued.labels(model, lane).inc(count)

    def planned(self, model: str, decisions: Iterable[Order | Wait]) -> None:
        """What the planner said of a model: its gaps that can be filled now, and those that wait."""
        backfill = [decision for decision in decisions if decision.lane == "backfill"]
        fillable = sum(len(decision.chunks) for decision in backfill if isinstance(decision, Order))
        self._seen.gaps[model] = {
            "fillable": fillable,
            "blocked": sum(isinstance(decision, Wait) for decision in backfill),
        }

    def checked(self, result: Readiness, seconds: float) -> None:
        self._checks.labels(result).inc()
        self._check_seconds.observe(seconds)

    def looked(self, model: str, ok: bool) -> None:
        self._looks.labels(model, "ok" if ok else "error").inc()

    def slot_fired(self, slot: Slot) -> None:
        self._slots.labels(slot.model, slot.lane).inc()

    def pruned(self, tasks: int) -> None:
        self._pruned.inc(tasks)

    def error(self, component: str, error: BaseException) -> None:
        self._errors.labels(component, type(error).__name__).inc()

    def round_ended(self, seconds: float) -> None:
        self._rounds.observe(seconds)

    def heartbeat_sent(self) -> None:
        self._seen.heart_beat()

    # what is there

    def saw(self, view: StateView) -> None:
        """Show this moment of the database until the next one is seen."""
        self._seen.view = view

    def saw_workers(self, workers: Iterable[WorkerRecord]) -> None:
        self._seen.workers = Counts(worker.role or "unknown" for worker in workers)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, labels, namespace=_NAMESPACE, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, about, labels, namespace=_NAMESPACE, registry=self.registry, buckets=buckets)


class _Seen(Collector):
    """Gauges of what was last read. They are made at each scrape, so what is gone leaves no series behind."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.view: StateView | None = None
        self.workers: Mapping[str, int] = {}
        self.gaps: dict[str, dict[str, int]] = {}
        self._clock = clock
        self._beat_at: float | None = None

    def heart_beat(self) -> None:
        self._beat_at = self._clock()

    def collect(self) -> Iterator[Metric]:
        view, beat_at = self.view, self._beat_at
        work = {name: view.work.get(name, Work()) for name in view.working} if view else {}
        yield _gauge("tasks_running", "Tasks that a worker holds.", ("model",), _by(work, lambda tasks: tasks.running))
        waiting = _by(work, lambda tasks: tasks.queued + tasks.retrying)
        yield _gauge("tasks_waiting", "Tasks that are queued or to be tried again.", ("model",), waiting)
        dead = _by(work, lambda tasks: tasks.dead_tasks)
        yield _gauge("tasks_dead", "Tasks that failed for good and that nothing has replaced.", ("model",), dead)
        yield _gauge("model_bounds", "Where the data of a model begin and end.", ("model", "edge"), _bounds(view))
        gaps: Series = {
            (name, kind): n for name, kinds in dict(self.gaps).items() if name in work for kind, n in kinds.items()
        }
        about = "Gaps when the model was last planned: chunks that could be filled, and whether one has to wait."
        yield _gauge("gaps", about, ("model", "kind"), gaps)
        events: Series = {(): view.events} if view else {}
        yield _gauge("event_queue", "Events that no scheduler has handled yet.", (), events)
        schedules: Series = {(): len(view.schedules)} if view else {}
        yield _gauge("schedules", "Lanes that have a schedule of their own.", (), schedules)
        revision: Series = {(view.revision,): 1} if view and view.revision else {}
        yield _gauge("revision_info", "The active revision of the project.", ("revision",), revision)
        roles: Series = {(role,): count for role, count in self.workers.items()}
        yield _gauge("workers", "Processes whose connection to the state database is up.", ("role",), roles)
        age: Series = {} if beat_at is None else {(): self._clock() - beat_at}
        yield _gauge("heartbeat_age_seconds", "How long ago this process last renewed its leases.", (), age)


class _Plain(Collector):
    """A registry without the moments at which counters were made: they would double the number of series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def _gauge(name: str, about: str, labels: tuple[str, ...], values: Series) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_NAMESPACE}_{name}", about, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def _by(work: Mapping[str, Work], count: Callable[[Work], int]) -> Series:
    return {(name,): count(tasks) for name, tasks in work.items()}


def _bounds(view: StateView | None) -> Series:
    """Of tables that are served and of sources; what holds nothing has none."""
    if view is None:
        return {}
    edges = {name: (generation.covered.first, generation.covered.end) for name, generation in view.current.items()}
    edges |= {name: (source.min_pos, source.end_pos) for name, source in view.sources.items()}
    return {
        (name, edge): position
        for name, ends in edges.items()
        for edge, position in zip(("start", "end"), ends, strict=True)
        if position is not None
    }
