"""Changes that a naive refresh gets wrong, each by its story.

In `a` the columns k, g, x, s, ts stand for order, customer, amount, country and time; in `b` k, h, y, s stand for
customer, score, limit and region.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest
from dynamic_fuzz import INPUTS, START, settled

from penstock.planner.dynamic.program import Incremental, understand

PER_CUSTOMER = "select g, sum(x) as total, count(*) as orders from a group by g"
PER_REGION = "select b.s as region, sum(a.x) as total from a join b on a.g = b.k group by b.s"
HISTOGRAM = "select n, count(*) as customers from (select g, count(*) as n from a group by g) per group by n"


def order(number: int | None, customer: int | None, amount: int | None = 1, at: datetime | None = None) -> tuple:
    return (number, customer, amount, "a", at)


def customer(number: int | None, region: str | None) -> tuple:
    return (number, 0, 0, region)


def a(*rows: tuple) -> dict[str, tuple]:
    return {"a": rows}


def test_a_row_that_moves_to_another_key_changes_both() -> None:
    rows, keys = settled(PER_CUSTOMER, a(order(1, 5), order(2, 5)), a(order(1, 7), order(2, 5)))
    assert rows == Counter({(5, 1, 1): 1, (7, 1, 1): 1})
    assert keys == {(5,), (7,)}


def test_a_group_without_rows_vanishes() -> None:
    rows, _ = settled(PER_CUSTOMER, a(order(1, 5), order(2, 6)), a(order(2, 6)))
    assert rows == Counter({(6, 1, 1): 1})


def test_null_is_a_key_like_any_other() -> None:
    rows, keys = settled(PER_CUSTOMER, a(order(1, None)), a(order(1, None), order(2, None)))
    assert rows == Counter({(None, 2, 2): 1})
    assert keys == {(None,)}


def test_both_sides_of_a_join_may_change_at_once() -> None:
    sql = "select a.x as amount, b.s as region, count(*) as n from a join b on a.g = b.k group by a.x, b.s"
    old = {"a": (order(1, 5), order(2, 5)), "b": (customer(5, "eu"),)}
    rows, keys = settled(sql, old, {"a": (order(2, 5),), "b": (customer(5, "us"),)})
    assert rows == Counter({(1, "us", 1): 1})
    assert keys >= {(1, "eu"), (1, "us")}


def test_a_changed_attribute_of_a_dimension_finds_the_keys_of_its_facts() -> None:
    orders = (order(1, 5), order(2, 6))
    old = {"a": orders, "b": (customer(5, "eu"), customer(6, "eu"))}
    new = {"a": orders, "b": (customer(5, "us"), customer(6, "eu"))}
    rows, keys = settled(PER_REGION, old, new)
    assert rows == Counter({("us", 1): 1, ("eu", 1): 1})
    assert keys == {("eu",), ("us",)}
    _, facts = settled("select a.k, b.s from a left join b on a.g = b.k", old, new)
    assert {key[0] for key in facts} == {1}


def test_the_first_and_the_last_partner_of_a_left_join_change_the_row_without_partner() -> None:
    sql = "select b.s as name, a.k from b left join a on a.g = b.k"
    without, with_order = {"b": (customer(5, "bob"),)}, {"b": (customer(5, "bob"),), "a": (order(1, 5),)}
    assert settled(sql, without, with_order)[0] == Counter({("bob", 1): 1})
    assert settled(sql, with_order, without)[0] == Counter({("bob", None): 1})


def test_a_null_empties_not_in_and_its_end_brings_all_rows_back() -> None:
    sql = "select k from a where g not in (select k from b)"
    orders = (order(1, 5), order(2, 6))
    plain, with_null = (
        {"a": orders, "b": (customer(6, "eu"),)},
        {"a": orders, "b": (customer(6, "eu"), customer(None, "eu"))},
    )
    assert settled(sql, plain, with_null) == (Counter(), {(1,), (2,)})
    assert settled(sql, with_null, plain)[0] == Counter({(1,): 1})


def test_an_aggregate_of_an_aggregate_changes_in_the_old_and_in_the_new_bucket() -> None:
    rows, keys = settled(HISTOGRAM, a(order(1, 5), order(2, 6)), a(order(1, 5), order(2, 6), order(3, 5)))
    assert rows == Counter({(1, 1): 1, (2, 1): 1})
    assert keys == {(1,), (2,)}


@pytest.mark.parametrize("side", ["a", "b"])
def test_every_source_of_a_join_is_looked_at(side: str) -> None:
    old = {"a": (order(1, 5),), "b": (customer(5, "eu"),)}
    rows, _ = settled(PER_REGION, old, {**old, side: ()})
    assert rows == Counter()


def test_a_group_that_is_gone_is_removed_although_no_row_of_it_is_left_to_find() -> None:
    rows, keys = settled(PER_CUSTOMER, a(order(1, 5)), {})
    assert (rows, keys) == (Counter(), {(5,)})


def test_a_sum_of_zero_is_a_group_and_a_sum_of_nulls_is_null() -> None:
    rows, _ = settled(PER_CUSTOMER, a(order(1, 5, 2)), a(order(1, 5, 2), order(2, 5, -2)))
    assert rows == Counter({(5, 0, 2): 1})
    rows, _ = settled(PER_CUSTOMER, a(order(1, 5, 2)), a(order(1, 5, None)))
    assert rows == Counter({(5, None, 1): 1})


@pytest.mark.parametrize(
    ("sql", "hidden"),
    [
        ("select sum(x) as total from a group by g", ("__penstock_k0",)),
        ("select g % 2 as odd, sum(x) as total from a group by 1", ()),
        ("select g as who, sum(x) as total from a group by who", ()),
        ("select g as who, sum(x) as total from a group by all", ()),
    ],
)
def test_the_key_is_known_however_it_is_grouped_by(sql: str, hidden: tuple[str, ...]) -> None:
    program = understand(sql, INPUTS)
    assert isinstance(program, Incremental)
    assert program.hidden == hidden
    settled(sql, a(order(1, 5), order(2, 6)), a(order(1, 6), order(2, 6)))


def test_the_surviving_copies_of_a_row_survive() -> None:
    rows, keys = settled("select g, x from a", a(order(1, 5), order(2, 5), order(3, 5)), a(order(1, 5), order(2, 5)))
    assert (rows, keys) == (Counter({(5, 1): 2}), {(5, 1)})


def test_a_change_that_was_taken_back_gives_the_same_rows() -> None:
    state = a(order(1, 5), order(2, 6))
    feed = {"a": (order(1, 5), order(1, 7), order(1, 7), order(1, 5))}
    rows, keys = settled(PER_CUSTOMER, state, state, changes=feed)
    assert rows == Counter({(5, 1, 1): 1, (6, 1, 1): 1})
    assert keys == {(5,), (7,)}


def test_rows_that_share_a_key_are_replaced_together() -> None:
    sql = "select g, k, row_number() over (partition by g order by k) as place from a"
    rows, keys = settled(sql, a(order(1, 5), order(2, 5), order(3, 5)), a(order(2, 5), order(3, 5)))
    assert rows == Counter({(5, 2, 1): 1, (5, 3, 2): 1})
    assert keys == {(5,)}


def test_windows_with_different_partitions_see_whole_partitions() -> None:
    sql = "select k, count(*) over (partition by g) as by_g, count(*) over (partition by x) as by_x from a"
    old = a(order(1, 5, 1), order(2, 5, 2), order(3, 6, 2), order(4, 6, 3))
    rows, _ = settled(sql, old, {"a": old["a"][1:]})
    assert rows == Counter({(2, 1, 2): 1, (3, 2, 2): 1, (4, 2, 1): 1})


def test_time_alone_takes_rows_out_of_a_rolling_filter() -> None:
    sql = "select g, count(*) as n from a where ts >= now() - interval 24 hours group by g"
    at = START.replace(tzinfo=None)
    state = a(order(1, 5, 1, at - timedelta(hours=23)), order(2, 6, 1, at - timedelta(hours=2)))
    rows, keys = settled(sql, state, state, then=START, now=START + timedelta(hours=2))
    assert (rows, keys) == (Counter({(6, 1): 1}), {(5,)})
