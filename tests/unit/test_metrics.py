"""Does a dashboard see what happened, and nothing that is gone?"""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import EngineError
from penstock.planner.readiness.observation import Wait
from penstock.runtime.process.metrics import Metrics
from penstock.runtime.process.progress import Finished
from penstock.values.intervals import Interval, IntervalSet, ranges
from penstock.values.records import Generation, ScheduleRecord, Slot, SourceRecord, StateView, Work, WorkerRecord
from penstock.values.tasks import Lane, Order

NOW = datetime(2026, 11, 16, 2, 40, tzinfo=UTC)
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/observability.md"


def order(model: str = "shop.orders", lane: Lane = "forward", chunks: int = 1) -> Order:
    return Order(model, lane, tuple(Interval(10 * n, 10 * n + 10) for n in range(chunks)), (), "new data")


def generation(model: str, covered: IntervalSet) -> Generation:
    return Generation(1, UUID(int=1), model, "f", "current", model, 0, 3, 3, None, covered=covered, stale=IntervalSet())


def source(model: str, start: int | None, end: int | None) -> SourceRecord:
    return SourceRecord(model, None, None, None, {}, start, end, None, None, None, None, NOW, None)


def view(**more: object) -> StateView:
    built = {"shop.orders": generation("shop.orders", ranges((0, 40), (50, 90)))}
    usual: dict[str, object] = {
        "at": NOW,
        "revision": "abc",
        "paused": frozenset(),
        "working": {**built, "shop.new": generation("shop.new", IntervalSet())},
        "current": built,
        "sources": {"raw.orders": source("raw.orders", 5, 100), "raw.empty": source("raw.empty", None, None)},
        "work": {"shop.orders": Work(queued=2, running=1, retrying=3, dead_tasks=4)},
        "events": 7,
        "schedules": (ScheduleRecord("shop.orders", "forward", "@hourly", NOW, None),),
    }
    return StateView(**(usual | more))  # type: ignore[arg-type]


def worker(name: str, role: str | None) -> WorkerRecord:
    return WorkerRecord(name, "host", 1, NOW, NOW, role=role)


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample by its name less the prefix, followed by its labels."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (
            sample.name.removeprefix("penstock_"),
            *(f"{name}={value}" for name, value in sorted(sample.labels.items())),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def everything() -> Metrics:
    """With at least one sample of every metric."""
    metrics = Metrics()
    metrics.task_ended(Finished(order(), "succeeded", 0.4))
    metrics.enqueued([order()])
    metrics.planned("shop.orders", [order(lane="backfill")])
    metrics.checked("ready", 0.01)
    metrics.looked("raw.orders", True)
    metrics.slot_fired(Slot("shop.orders", "forward", NOW, NOW + timedelta(hours=1)))
    metrics.pruned(3)
    metrics.error("worker", EngineError("x"))
    metrics.round_ended(0.1)
    metrics.heartbeat_sent()
    metrics.saw(view())
    metrics.saw_workers([worker("a", "worker")])
    return metrics


# what happened


def test_attempts_are_counted_by_model_lane_and_end() -> None:
    metrics = Metrics()
    metrics.task_ended(Finished(order(), "succeeded", 0.4))
    metrics.task_ended(Finished(order(), "succeeded", 40.0))
    metrics.task_ended(Finished(order(lane="repair"), "dead", 1.0, error="x"))
    found = samples(metrics)
    assert found["tasks_total", "lane=forward", "model=shop.orders", "status=succeeded"] == 2
    assert found["tasks_total", "lane=repair", "model=shop.orders", "status=dead"] == 1
    assert found["task_seconds_count", "model=shop.orders"] == 3
    assert found["task_seconds_sum", "model=shop.orders"] == pytest.approx(41.4)
    assert found["task_seconds_bucket", "le=0.5", "model=shop.orders"] == 1


def test_what_was_planned_is_counted() -> None:
    metrics = Metrics()
    metrics.enqueued([order(), order(), order(lane="backfill"), order("shop.new")])
    metrics.enqueued([order()])
    metrics.enqueued([])
    found = samples(metrics)
    assert found["tasks_enqueued_total", "lane=forward", "model=shop.orders"] == 3
    assert found["tasks_enqueued_total", "lane=backfill", "model=shop.orders"] == 1
    assert found["tasks_enqueued_total", "lane=forward", "model=shop.new"] == 1


def test_gaps_are_those_of_the_last_planning() -> None:
    metrics = Metrics()
    metrics.saw(view())
    metrics.planned("shop.orders", [order(chunks=9), order(lane="backfill", chunks=3), order(lane="backfill")])
    assert samples(metrics)["gaps", "kind=fillable", "model=shop.orders"] == 4
    metrics.planned(
        "shop.orders", [Wait("shop.orders", "not there yet", "backfill"), Wait("shop.orders", "up to date")]
    )
    found = samples(metrics)
    assert found["gaps", "kind=fillable", "model=shop.orders"] == 0
    assert found["gaps", "kind=blocked", "model=shop.orders"] == 1


def test_looks_checks_slots_errors_and_prunings_are_counted() -> None:
    metrics = Metrics()
    metrics.looked("raw.orders", True)
    metrics.looked("raw.orders", False)
    metrics.checked("waiting", 0.2)
    metrics.slot_fired(Slot("shop.orders", "backfill", NOW, NOW))
    metrics.error("scheduler", EngineError("x"))
    metrics.pruned(3)
    metrics.pruned(2)
    metrics.round_ended(0.2)
    found = samples(metrics)
    assert found["source_looks_total", "model=raw.orders", "result=ok"] == 1
    assert found["source_looks_total", "model=raw.orders", "result=error"] == 1
    assert found["readiness_checks_total", "result=waiting"] == 1
    assert found["readiness_check_seconds_sum",] == pytest.approx(0.2)
    assert found["schedule_slots_total", "lane=backfill", "model=shop.orders"] == 1
    assert found["errors_total", "component=scheduler", "type=EngineError"] == 1
    assert found["tasks_pruned_total",] == 5
    assert found["round_seconds_count",] == 1


def test_counting_from_many_threads_loses_nothing() -> None:
    metrics, together = Metrics(), threading.Barrier(4)

    def count() -> None:
        together.wait(10)
        for _ in range(500):
            metrics.task_ended(Finished(order(), "succeeded", 0.1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert samples(metrics)["tasks_total", "lane=forward", "model=shop.orders", "status=succeeded"] == 2000


# what is there


def test_gauges_show_the_state_that_was_seen() -> None:
    metrics = Metrics()
    metrics.saw(view())
    found = samples(metrics)
    assert found["tasks_running", "model=shop.orders"] == 1
    assert found["tasks_waiting", "model=shop.orders"] == 5
    assert found["tasks_dead", "model=shop.orders"] == 4
    assert found["tasks_running", "model=shop.new"] == 0
    assert found["model_bounds", "edge=start", "model=shop.orders"] == 0
    assert found["model_bounds", "edge=end", "model=shop.orders"] == 90
    assert found["model_bounds", "edge=start", "model=raw.orders"] == 5
    assert found["model_bounds", "edge=end", "model=raw.orders"] == 100
    assert not [key for key in found if key[0] == "model_bounds" and "raw.empty" in key[-1]]
    assert found["event_queue",] == 7
    assert found["schedules",] == 1
    assert found["revision_info", "revision=abc"] == 1


def test_what_is_gone_leaves_no_series_behind() -> None:
    metrics = Metrics()
    metrics.saw(view())
    metrics.planned("shop.orders", [order(lane="backfill")])
    metrics.saw_workers([worker("a", "worker"), worker("b", "scheduler")])
    metrics.saw(view(revision="def", working={}, current={}, sources={}, work={}))
    metrics.saw_workers([worker("a", "worker"), worker("c", "worker"), worker("d", None)])
    found = samples(metrics)
    assert not [key for key in found if any("shop." in part or "raw." in part for part in key)]
    assert ("revision_info", "revision=abc") not in found
    assert found["revision_info", "revision=def"] == 1
    assert {key[1]: value for key, value in found.items() if key[0] == "workers"} == {
        "role=worker": 2,
        "role=unknown": 1,
    }


def test_the_age_of_the_heartbeat_grows_until_the_next() -> None:
    now = [100.0]
    metrics = Metrics(lambda: now[0])
    assert ("heartbeat_age_seconds",) not in samples(metrics)
    metrics.heartbeat_sent()
    now[0] = 112.5
    assert samples(metrics)["heartbeat_age_seconds",] == 12.5
    metrics.heartbeat_sent()
    assert samples(metrics)["heartbeat_age_seconds",] == 0


def test_two_processes_in_one_do_not_share_counters() -> None:
    one, other = Metrics(), Metrics()
    one.pruned(3)
    assert samples(other)["tasks_pruned_total",] == 0
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("penstock")]


# the format


def test_labels_with_odd_characters_come_back_as_they_were() -> None:
    metrics = Metrics()
    odd = 'we"ird\\ \n{name}=1,é'
    metrics.looked(odd, True)
    assert samples(metrics)["source_looks_total", f"model={odd}", "result=ok"] == 1


def test_every_metric_has_the_prefix_a_help_text_and_a_sample() -> None:
    families = list(text_string_to_metric_families(everything().text().decode()))
    assert len(families) == len({family.name for family in families})
    for family in families:
        assert family.name.startswith("penstock_")
        assert family.documentation.endswith("."), family.name
        assert family.samples, f"everything() does not count {family.name}"


def test_the_moments_at_which_counters_were_made_are_left_out() -> None:
    assert b"_created" not in everything().text()


def test_a_new_process_gives_its_metrics_at_once() -> None:
    assert {family.name for family in text_string_to_metric_families(Metrics().text().decode())} == {
        family.name for family in text_string_to_metric_families(everything().text().decode())
    }


# what is written of them


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """The table of the document: type and labels by name."""
    rows = re.findall(r"^\| `(penstock_\w+)` \| (\w+) \| ([^|]*) \| [^|]+ \|$", DOCUMENT.read_text(), re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def counted(metrics: Metrics) -> dict[str, tuple[str, frozenset[str]]]:
    """The same as a dashboard finds it."""
    return {
        (f"{family.name}_total" if family.type == "counter" else family.name): (
            family.type,
            frozenset(name for sample in family.samples for name in sample.labels if name != "le"),
        )
        for family in text_string_to_metric_families(metrics.text().decode())
    }


def test_the_document_lists_every_metric_and_no_other() -> None:
    assert documented() == counted(everything()), "the table in docs/observability.md differs"


def test_a_metric_that_is_missing_in_the_document_is_noticed() -> None:
    metrics = everything()
    metrics._counter("forgotten_total", "Written nowhere.")
    assert documented() != counted(metrics)
