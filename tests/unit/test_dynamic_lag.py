"""Are dynamic tables refreshed as soon as they have to be, and no sooner?"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from dynamic_tables import NOON, source, table

from penstock.planner.dynamic.lag import due_at, leads, target_lags
from penstock.values.models import DynamicModel, Graph


def tables(*models: DynamicModel) -> Graph:
    return Graph.of((source("orders"), source("people"), *models))


def test_a_lag_is_a_time_or_follows_the_inputs_or_is_up_to_people() -> None:
    shop = tables(
        table("minutes", "orders", target_lag=120),
        table("follows", "orders", target_lag="on_upstream"),
        table("by_hand", "orders", target_lag="manual"),
    )
    assert target_lags(shop) == {"minutes": 120, "follows": 0, "by_hand": None}


def test_downstream_is_the_shortest_lag_of_all_consumers() -> None:
    shop = tables(
        table("base", "orders", target_lag="downstream"),
        table("hourly", "base", target_lag=3600),
        table("daily", "base", target_lag=86400),
        table("by_hand", "base", target_lag="manual"),
    )
    assert target_lags(shop)["base"] == 3600


def test_downstream_goes_through_tables_that_say_downstream_too() -> None:
    shop = tables(
        table("base", "orders", target_lag="downstream"),
        table("middle", "base", target_lag="downstream"),
        table("hourly", "middle", target_lag=3600),
    )
    assert target_lags(shop) == {"hourly": 3600, "middle": 3600, "base": 3600}


@pytest.mark.parametrize("consumer", ["manual", "downstream"])
def test_downstream_of_nobody_who_asks_is_refreshed_only_when_asked_for(consumer: str) -> None:
    shop = tables(table("base", "orders", target_lag="downstream"), table("reader", "base", target_lag=consumer))
    assert target_lags(shop) == {"base": None, "reader": None}


def test_a_consumer_with_a_shorter_lag_pulls_what_it_is_made_from() -> None:
    shop = tables(table("base", "orders", target_lag=3600), table("reader", "base", target_lag=60))
    assert target_lags(shop) == {"base": 60, "reader": 60}


def test_a_consumer_with_a_longer_lag_does_not() -> None:
    shop = tables(table("base", "orders", target_lag=60), table("reader", "base", target_lag=3600))
    assert target_lags(shop) == {"base": 60, "reader": 3600}


def test_a_table_that_is_refreshed_by_hand_is_not_pulled_by_its_consumers() -> None:
    shop = tables(table("base", "orders", target_lag="manual"), table("reader", "base", target_lag=60))
    assert target_lags(shop)["base"] is None


def test_companions_have_the_shortest_of_their_lags() -> None:
    """They do not go on before each other: the slower one would keep the quicker one from its lag."""
    shop = tables(
        table("top", "orders", target_lag=7200),
        table("arm", "top", target_lag=3600),
        table("quick", "orders", target_lag=60),
        table("apart", "people", target_lag=3600),
        table("all", "arm", "quick", "apart", target_lag=900),
    )
    assert target_lags(shop) == {"top": 60, "arm": 60, "quick": 60, "apart": 900, "all": 900}


def test_a_refresh_begins_early_enough_to_be_done_in_time() -> None:
    assert due_at(NOON, 300, 20.0) == NOON + timedelta(seconds=280)
    assert due_at(NOON, 300, 400.0) == NOON
    assert due_at(None, 300, 20.0) is None


def test_a_refresh_also_begins_early_enough_for_the_tables_that_are_made_of_it() -> None:
    shop = tables(
        table("base", "orders", target_lag=3600),
        table("middle", "base", target_lag=3600),
        table("end", "middle", target_lag=300),
        table("late", "base", target_lag=3600),
    )
    takes = {"base": 30.0, "middle": 20.0, "end": 10.0, "late": 5.0}
    assert leads(shop, target_lags(shop), takes) == {"base": 60.0, "middle": 30.0, "end": 10.0, "late": 5.0}


def test_a_consumer_that_is_refreshed_by_hand_makes_nobody_begin_earlier() -> None:
    shop = tables(table("base", "orders", target_lag=300), table("reader", "base", target_lag="manual"))
    assert leads(shop, target_lags(shop), {"base": 30.0, "reader": 100.0})["base"] == 30.0


CHAIN = tables(
    table("base", "orders", target_lag="downstream"),
    table("middle", "base", target_lag="downstream"),
    table("end", "middle", target_lag=300),
)


@pytest.mark.parametrize(
    "takes", [{"base": 20.0, "middle": 1.0, "end": 1.0}, {"base": 20.0, "middle": 60.0, "end": 30.0}]
)
def test_b_31_no_lag_is_ever_longer_than_its_target_where_that_can_be_kept(takes: dict[str, float]) -> None:
    """Second by second: inputs change all the time, and every refresh takes as long as the one before."""
    lags, early = target_lags(CHAIN), leads(CHAIN, target_lags(CHAIN), takes)
    fresh: dict[str, datetime] = dict.fromkeys(lags, NOON)
    running: dict[str, tuple[datetime, datetime]] = {}
    refreshes = dict.fromkeys(lags, 0)
    for second in range(4000):
        now = NOON + timedelta(seconds=second)
        for name, (ends, of) in list(running.items()):
            if ends <= now:
                del running[name]
                fresh[name] = of
                refreshes[name] += 1
        for model in CHAIN.dynamic_models:
            name, lag = model.name, lags[model.name]
            assert lag is not None
            assert (now - fresh[name]).total_seconds() <= lag, f"{name} after {second} s"
            of = min(fresh.get(parent, now) for parent in CHAIN.parents(name))
            due = due_at(fresh[name], lag, early[name])
            if name not in running and of > fresh[name] and due is not None and due <= now:
                running[name] = now + timedelta(seconds=takes.get(name, 0.0)), of
    assert all(10 < count < 40 for count in refreshes.values()), refreshes
