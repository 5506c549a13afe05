"""Do tables that are read together show their inputs at one moment?"""

from __future__ import annotations

from random import Random

import pytest
from dynamic_tables import Life, graph, pin, pins, snapshots

from penstock.planner.dynamic.companions import companions
from penstock.planner.dynamic.snapshots import Held, same_snapshot
from penstock.values.models import Graph

DIAMOND = graph("orders", left="orders", right="orders", both="left right")
SHAPES = {
    "a diamond": DIAMOND,
    "a diamond that reads its input too": graph("orders", left="orders", right="orders", both="left right orders"),
    "a diamond with a long arm": graph("orders", a="orders", b="a", c="b", short="orders", both="c short"),
    "a diamond below a table": graph("orders", top="orders", left="top", right="top", both="left right"),
    "a table and what is made of it": graph("orders", daily="orders", weekly="daily", both="daily weekly orders"),
    "two inputs": graph("orders people", left="orders people", right="orders people", both="left right"),
    "two inputs, one through a table": graph(
        "orders people", top="orders", left="top people", right="top people", both="left right"
    ),
    "two diamonds": graph("orders", a="orders", b="orders", c="a b", d="orders", e="c d"),
    "three arms": graph("orders", a="orders", b="orders", c="orders", ab="a b", bc="b c", abc="ab bc"),
}


def held(answer: object) -> str:
    assert isinstance(answer, Held)
    return answer.reason


def test_a_table_reads_its_inputs_as_they_are_now() -> None:
    one = graph("orders people", daily="orders people")
    seen = snapshots(one, pins(orders=7, people=3), {})
    assert seen.chosen(one.dynamic_models[0]) == pins(orders=7, people=3)


def test_an_input_of_a_parent_is_read_as_the_parent_read_it() -> None:
    chain = graph("orders", daily="orders", weekly="daily orders")
    seen = snapshots(chain, pins(orders=7, daily=2), {"daily": pins(orders=5)})
    assert seen.chosen(chain.dynamic_models[1]) == pins(orders=5, daily=2)


def test_what_is_read_through_several_tables_is_known_at_the_end_of_the_chain() -> None:
    chain = graph("orders", a="orders", b="a", c="b orders")
    made_from = {"a": pins(orders=5), "b": pins(orders=4, a=1)}
    seen = snapshots(chain, pins(orders=7, a=2, b=1), made_from)
    assert seen.chosen(chain.dynamic_models[2]) == pins(orders=4, a=1, b=1)


def test_a_parent_that_another_one_has_read_is_read_as_that_one_did() -> None:
    shape = graph("orders", daily="orders", weekly="daily", both="daily weekly orders")
    made_from = {"daily": pins(orders=6), "weekly": pins(orders=5, daily=2)}
    seen = snapshots(shape, pins(orders=7, daily=3, weekly=1), made_from)
    assert seen.chosen(shape.dynamic_models[2]) == pins(orders=5, daily=2, weekly=1)


def test_parents_of_two_moments_are_not_read_together() -> None:
    seen = snapshots(DIAMOND, pins(orders=7, left=2, right=2), {"left": pins(orders=5), "right": pins(orders=4)})
    reason = held(seen.chosen(DIAMOND.dynamic_models[2]))
    assert reason == "waiting for right: it has read another snapshot of orders than left"


def test_the_parent_that_is_behind_goes_to_where_the_other_is_and_that_one_waits() -> None:
    left, right, _ = DIAMOND.dynamic_models
    seen = snapshots(DIAMOND, pins(orders=7, left=2, right=2), {"left": pins(orders=5), "right": pins(orders=4)})
    assert seen.chosen(right) == pins(orders=5)
    said = "waiting for right, which has not read orders as far and has a consumer in common"
    assert held(seen.chosen(left)) == said


def test_parents_of_one_moment_go_on_together() -> None:
    left, right, both = DIAMOND.dynamic_models
    seen = snapshots(DIAMOND, pins(orders=7, left=2, right=2), {"left": pins(orders=5), "right": pins(orders=5)})
    assert seen.chosen(left) == seen.chosen(right) == pins(orders=7)
    assert seen.chosen(both) == pins(orders=5, left=2, right=2)


def test_a_table_that_is_not_refreshed_by_itself_holds_nobody() -> None:
    left = DIAMOND.dynamic_models[0]
    made_from = {"left": pins(orders=5), "right": pins(orders=4)}
    seen = snapshots(DIAMOND, pins(orders=7, left=2, right=2), made_from, away=["right"])
    assert seen.chosen(left) == pins(orders=7)


def test_neither_does_a_table_below_one_that_is_not_refreshed() -> None:
    shape = graph("orders", top="orders", below="top", left="orders", both="below left")
    made_from = {"top": pins(orders=4), "below": pins(orders=4, top=1), "left": pins(orders=5)}
    current = pins(orders=7, top=1, below=1, left=2)
    left = next(model for model in shape.dynamic_models if model.name == "left")
    assert snapshots(shape, current, made_from, away=["top"]).chosen(left) == pins(orders=7)
    assert "below" in held(snapshots(shape, current, made_from).chosen(left))


def test_a_table_is_not_refreshed_to_a_snapshot_of_a_table_that_was_replaced() -> None:
    right = DIAMOND.dynamic_models[1]
    made_from = {"left": {"orders": pin("orders", 12, "old")}, "right": {"orders": pin("orders", 10, "old")}}
    current = {**pins(left=2, right=2), "orders": pin("orders", 3, "new")}
    seen = snapshots(DIAMOND, current, made_from)
    assert seen.chosen(right) == {"orders": pin("orders", 3, "new")}


def test_a_table_that_nobody_reads_together_with_another_waits_for_nobody() -> None:
    apart = graph("orders", left="orders", right="orders")
    seen = snapshots(apart, pins(orders=7, left=2, right=2), {"left": pins(orders=5), "right": pins(orders=1)})
    assert seen.chosen(apart.dynamic_models[0]) == pins(orders=7)


def test_an_input_without_a_table_is_waited_for() -> None:
    chain = graph("orders", daily="orders", weekly="daily")
    seen = snapshots(chain, {"orders": None}, {})
    assert held(seen.chosen(chain.dynamic_models[0])) == "waiting for orders: it has no table yet"


def test_snapshots_of_another_table_and_of_another_generation_are_others() -> None:
    assert same_snapshot(pin("orders", 5), pin("orders", 5))
    assert not same_snapshot(pin("orders", 5), pin("orders", 6))
    assert not same_snapshot(pin("orders", 5), pin("orders", 5, "second"))
    assert not same_snapshot(pin("orders", 5), None)
    assert same_snapshot(None, None)


def test_companions_have_an_input_and_a_consumer_in_common() -> None:
    shape = graph("orders people", a="orders", b="a", c="orders", alone="orders", far="people", all="b c far")
    beside = companions(shape).of
    assert beside["a"] == {"c"}
    assert beside["c"] == {"a", "b"}
    assert not beside["alone"] and not beside["far"] and not beside["all"]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("slots", [100, 2])
def test_while_sources_commit_in_every_round_all_tables_go_on_and_none_mixes_moments(shape: Graph, slots: int) -> None:
    for seed in range(2):
        life = Life(shape, Random(seed), slots)
        life.live(120)
        assert life.mixed == []
        assert all(life.refreshed.get(model.name, 0) > 6 for model in shape.dynamic_models), life.refreshed


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_when_sources_are_quiet_every_table_comes_to_their_newest_snapshots(shape: Graph) -> None:
    life = Life(shape, Random(1))
    life.live(30)
    life.live(40, commits=False)
    assert not life.running
    for model in shape.dynamic_models:
        for name, read in life.made_from[model.name].items():
            assert read == life.current[name], f"{model.name} read {name}"


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_table_that_was_away_for_some_time_comes_back_to_the_others(shape: Graph) -> None:
    for away in [model.name for model in shape.dynamic_models]:
        life = Life(shape, Random(2))
        life.live(20)
        before = dict(life.refreshed)
        life.away = {away}
        life.live(30)
        others = [table for table in before if table != away and away not in companions(shape).above[table]]
        assert all(life.refreshed[table] > before[table] + 1 for table in others)
        life.away = set()
        life.live(60)
        assert life.mixed == []
        assert all(life.refreshed[table] > before[table] + 3 for table in before)
