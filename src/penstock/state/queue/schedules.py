"""When do lanes with a cadence of their own come up, and who fires them?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from penstock.planner.policy.cadence import following, parse
from penstock.state.database.connection import Database
from penstock.values.records import Definition, ScheduleRecord, Slot
from penstock.values.tasks import Lane


def due_slots(schedules: Iterable[ScheduleRecord], now: datetime) -> tuple[Slot, ...]:
    """At most one slot per lane, however many were missed; `@every` goes on from the slot itself and never drifts."""
    return tuple(
        Slot(
            schedule.model,
            schedule.lane,
            schedule.next_at,
            following(parse(schedule.spec), now, anchor=schedule.next_at),
        )
        for schedule in schedules
        if schedule.next_at <= now
    )


def write_schedules(database: Database, definitions: Sequence[Definition]) -> None:
    """Let exactly these cadences stand; one that is new or different starts counting now."""
    # sorted: rows are locked in the order in which schedulers take slots
    wanted = sorted((definition.name, lane, spec) for definition in definitions for lane, spec in definition.schedules)
    database.run("keep_schedules", models=[model for model, _, _ in wanted], lanes=[lane for _, lane, _ in wanted])
    now = database.value("present", datetime)
    assert now is not None  # noqa: S101  the clock always answers
    rows: list[dict[str, object]] = [
        {"model": model, "lane": lane, "spec": spec, "next_at": following(parse(spec), now, anchor=now)}
        for model, lane, spec in wanted
    ]
    database.run_many("upsert_schedule", rows)


def take_slots(database: Database, slots: Sequence[Slot]) -> frozenset[tuple[str, Lane]]:
    """Move each slot on; the lanes whose slot another scheduler has taken."""
    return frozenset(
        (slot.model, slot.lane)
        for slot in slots
        if not database.run("take_slot", model=slot.model, lane=slot.lane, at=slot.at, next_at=slot.next_at)
    )
