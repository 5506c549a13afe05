"""What is known of a dynamic table when the planner decides about it?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from dynamic_tables import NOON, source, table

from penstock.planner.dynamic.refresh import refresh
from penstock.planner.dynamic.snapshots import Held
from penstock.planner.observations import Observations
from penstock.values.intervals import EVERYTHING, NOTHING, IntervalSet
from penstock.values.models import DynamicModel, Graph
from penstock.values.records import Generation, RefreshRecord, SourceRecord, StateView, SuspensionRecord, Work
from penstock.values.tasks import Order, Pin

AGO = NOON - timedelta(minutes=2)
LONG_AGO = NOON - timedelta(hours=1)
DIAMOND = Graph.of(
    (source("orders"), table("left", "orders"), table("right", "orders"), table("both", "left", "right"))
)


def seen_source(name: str, snapshot: int, looked_at: datetime | None = AGO) -> SourceRecord:
    at = LONG_AGO
    known = SourceRecord(name, f"id of {name}", snapshot, "hash", {}, None, None, None, None, None, None, at, None)
    return SourceRecord(**{field: getattr(known, field) for field in known.__slots__} | {"looked_at": looked_at})


def source_pin(name: str, snapshot: int) -> Pin:
    return Pin(f"/landing/{name}", snapshot, f"id of {name}")


def generation(number: int, name: str, snapshot: int | None, stale: IntervalSet = NOTHING) -> Generation:
    return Generation(
        no=number,
        id=UUID(int=number),
        model=name,
        fingerprint="f",
        location=f"/tables/{name}",
        state="current",
        epoch=0,
        accepted_snapshot=snapshot,
        audited_snapshot=snapshot,
        data_timestamp=None,
        covered=NOTHING if snapshot is None else EVERYTHING,
        stale=stale,
    )


def table_pin(number: int, name: str, snapshot: int) -> Pin:
    return Pin(f"/tables/{name}", snapshot, None, str(UUID(int=number)))


def view(**known: Any) -> StateView:
    built = known.pop("built", {})
    basis: dict[str, Any] = {"revision": "r", "paused": frozenset(), "sources": {}, "work": {}, "events": 0}
    return StateView(at=NOON, working=built, current=built, **(basis | known))


def refreshed(name: str, at: datetime | None = LONG_AGO, seconds: float = 0.0, **inputs: Pin) -> RefreshRecord:
    return RefreshRecord(name, inputs, at, seconds)


def one(snapshot: int = 5, model: DynamicModel | None = None, **known: Any) -> Observations:
    """A table of orders that was made from snapshot 5."""
    basis: dict[str, Any] = {
        "built": {"daily": generation(1, "daily", 3)},
        "sources": {"orders": seen_source("orders", snapshot)},
        "refreshed": {"daily": refreshed("daily", seconds=20.0, orders=source_pin("orders", 5))},
    }
    return Observations(Graph.of((source("orders"), model or table("daily", "orders"))), view(**(basis | known)))


def daily(of: Observations) -> Any:
    model = of.graph.models["daily"]
    assert isinstance(model, DynamicModel)
    return of.refresh(model)


def test_while_no_input_changes_a_table_is_as_fresh_as_its_inputs_are_known() -> None:
    assert one().fresh("daily") == AGO
    assert not isinstance(refresh(daily(one())), Order)


def test_once_an_input_has_changed_it_is_as_fresh_as_when_it_was_refreshed() -> None:
    seen = one(snapshot=6)
    assert seen.fresh("daily") == LONG_AGO
    assert isinstance(refresh(daily(seen)), Order)


def test_rows_that_depend_on_the_time_get_older_although_no_input_changes() -> None:
    assert one(model=table("daily", "orders", timed=True)).fresh("daily") == LONG_AGO


def test_a_source_that_is_never_looked_at_again_was_known_when_it_was_observed() -> None:
    assert one(sources={"orders": seen_source("orders", 5, None)}).fresh("daily") == LONG_AGO


def test_a_table_below_a_table_is_as_fresh_as_that_one() -> None:
    chain = Graph.of((source("orders"), table("daily", "orders"), table("weekly", "daily")))
    built = {"daily": generation(1, "daily", 3), "weekly": generation(2, "weekly", 1)}
    records = {
        "daily": refreshed("daily", AGO, orders=source_pin("orders", 5)),
        "weekly": refreshed("weekly", LONG_AGO, daily=table_pin(1, "daily", 3), orders=source_pin("orders", 5)),
    }
    changed = view(built=built, sources={"orders": seen_source("orders", 6)}, refreshed=records)
    assert Observations(chain, changed).fresh("weekly") == AGO
    same = view(built=built, sources={"orders": seen_source("orders", 5, NOON)}, refreshed=records)
    assert Observations(chain, same).fresh("weekly") == NOON


def test_a_table_that_was_never_built_or_was_emptied_was_made_from_nothing() -> None:
    assert daily(one(refreshed={})).made_from is None
    empty = {"daily": generation(1, "daily", None)}
    assert daily(one(built=empty)).made_from is None
    assert refresh(daily(one(built=empty))).reason == "never built"


def test_a_rerun_is_seen_as_stale_rows() -> None:
    assert daily(one(built={"daily": generation(1, "daily", 3, EVERYTHING)})).asked
    assert not daily(one()).asked


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"work": {"daily": Work(in_flight=EVERYTHING)}}, "already being refreshed"),
        ({"work": {"daily": Work(dead=EVERYTHING)}}, "failed: it is not tried again until its cause is fixed"),
        ({"work": {"daily": Work(dead=EVERYTHING, cancelled=EVERYTHING)}}, "cancelled: it is not refreshed until"),
        ({"paused": frozenset(["daily"])}, "paused"),
        ({"suspended": {"daily": SuspensionRecord("daily", 1, "no such column", NOON, 3, False)}}, "no such column"),
        ({"sources": {}}, "waiting for orders: it was never observed"),
    ],
)
def test_what_the_database_holds_against_a_refresh_is_seen(known: dict[str, Any], said: str) -> None:
    assert said in refresh(daily(one(snapshot=6, **known))).reason


def test_an_input_that_is_not_built_is_waited_for_by_name() -> None:
    chain = Graph.of((source("orders"), table("daily", "orders"), table("weekly", "daily")))
    seen = Observations(chain, view(sources={"orders": seen_source("orders", 5)}))
    weekly = chain.dynamic_models[1]
    assert refresh(seen.refresh(weekly)).reason == "waiting for daily: not built yet"


def test_the_error_of_a_source_that_was_never_seen_is_said() -> None:
    failing = SourceRecord("orders", None, None, None, {}, None, None, None, None, None, None, None, "no table there")
    assert refresh(daily(one(sources={"orders": failing}))).reason == "waiting for orders: no table there"


def test_a_rebuilt_input_is_another_input() -> None:
    chain = Graph.of((source("orders"), table("daily", "orders"), table("weekly", "daily", target_lag=0)))
    records = {
        "daily": refreshed("daily", AGO, orders=source_pin("orders", 5)),
        "weekly": refreshed("weekly", AGO, daily=table_pin(1, "daily", 3), orders=source_pin("orders", 5)),
    }
    built = {"daily": generation(7, "daily", 3), "weekly": generation(2, "weekly", 1)}
    seen = Observations(chain, view(built=built, sources={"orders": seen_source("orders", 5)}, refreshed=records))
    assert refresh(seen.refresh(chain.dynamic_models[1])).reason == "daily changed"


def test_how_long_a_refresh_takes_counts_with_those_of_its_consumers() -> None:
    chain = Graph.of((source("orders"), table("daily", "orders"), table("weekly", "daily")))
    records = {
        "daily": refreshed("daily", AGO, 20.0, orders=source_pin("orders", 5)),
        "weekly": refreshed("weekly", AGO, 15.0, daily=table_pin(1, "daily", 3), orders=source_pin("orders", 5)),
    }
    built = {"daily": generation(1, "daily", 3), "weekly": generation(2, "weekly", 1)}
    seen = Observations(chain, view(built=built, sources={"orders": seen_source("orders", 5)}, refreshed=records))
    assert [seen.refresh(model).takes_seconds for model in chain.dynamic_models] == [35.0, 15.0]


def diamond(**known: Any) -> Observations:
    """The left side has read a snapshot more than the right one."""
    built = {name: generation(number, name, 1) for number, name in enumerate(("left", "right", "both"), 1)}
    records = {
        "left": refreshed("left", AGO, orders=source_pin("orders", 5)),
        "right": refreshed("right", LONG_AGO, orders=source_pin("orders", 4)),
    }
    basis: dict[str, Any] = {"built": built, "sources": {"orders": seen_source("orders", 6)}, "refreshed": records}
    return Observations(DIAMOND, view(**(basis | known)))


def left(of: Observations) -> Any:
    return of.refresh(of.graph.dynamic_models[0])


@pytest.mark.parametrize(
    "known",
    [
        {"paused": frozenset(["right"])},
        {"suspended": {"right": SuspensionRecord("right", 2, "no such column", NOON, 3, False)}},
        {"work": {"right": Work(dead=EVERYTHING)}},
        {"work": {"right": Work(cancelled=EVERYTHING)}},
    ],
)
def test_a_companion_that_stands_still_holds_nobody(known: dict[str, Any]) -> None:
    assert isinstance(left(diamond()).snapshots, Held)
    assert left(diamond(**known)).snapshots == {"orders": source_pin("orders", 6)}


def test_a_companion_that_is_refreshed_by_hand_holds_nobody() -> None:
    seen = diamond()
    by_hand = Graph.of(
        (*DIAMOND.sources, *(table("right", "orders", target_lag="manual") if m.name == "right" else m
                             for m in DIAMOND.dynamic_models))
    )  # fmt: skip
    assert left(Observations(by_hand, seen.view)).snapshots == {"orders": source_pin("orders", 6)}


def test_rows_of_an_older_snapshot_are_of_the_moment_at_which_it_was_the_newest() -> None:
    """The right side is refreshed to where the left one is, although there is more already."""
    seen = diamond()
    read = seen.refresh(seen.graph.dynamic_models[1]).snapshots
    assert read == {"orders": source_pin("orders", 5)}
    assert seen.moment("orders", source_pin("orders", 5)) == AGO
    assert seen.moment("orders", source_pin("orders", 4)) == LONG_AGO
    assert seen.moment("orders", source_pin("orders", 3)) is None


def test_an_input_without_a_log_may_have_changed_at_any_time() -> None:
    unknown = {name: getattr(seen_source("orders", 5), name) for name in SourceRecord.__slots__} | {"snapshot": None}
    made = refreshed("daily", orders=Pin("/landing/orders", None, "id of orders"))
    of = one(sources={"orders": SourceRecord(**unknown)}, refreshed={"daily": made})
    seen = daily(of)
    assert (seen.timed, seen.fresh) == (True, LONG_AGO)
    decision = refresh(seen)
    assert isinstance(decision, Order)
    assert decision.reason == "nothing tells whether orders changed"
