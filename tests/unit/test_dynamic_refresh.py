"""When is a dynamic table refreshed, and what is said when it is not?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from dynamic_tables import NOON, graph, observed, pin, pins, table

from penstock.planner.dynamic.refresh import (
    RefreshObservation,
    changed_inputs,
    recheck_refresh,
    refresh,
    refresh_checks,
    waits_until,
)
from penstock.planner.dynamic.snapshots import Held
from penstock.planner.dynamic.strategy import SMALL_BYTES, Sizes, by_keys_or_full
from penstock.values.tasks import WHOLE, Order

CHANGED: dict[str, Any] = {"snapshots": pins(orders=6), "fresh": NOON - timedelta(seconds=300)}
"""An input changed, and the rows are as old as they may be."""


def waits(seen: RefreshObservation) -> str:
    decision = refresh(seen)
    assert not isinstance(decision, Order), decision
    return decision.reason


def ordered(seen: RefreshObservation) -> Order:
    decision = refresh(seen)
    assert isinstance(decision, Order), decision
    return decision


def test_a_table_that_was_never_built_is_built_at_once() -> None:
    order = ordered(observed(made_from=None, fresh=None))
    assert (order.lane, order.chunks, order.choices, order.reason) == ("refresh", (WHOLE,), ("orders",), "never built")


def test_a_table_of_which_no_input_changed_waits() -> None:
    assert waits(observed(fresh=NOON - timedelta(days=1))) == "up to date: no input has changed since it was refreshed"


def test_a_changed_input_is_a_reason_once_the_rows_are_as_old_as_they_may_be() -> None:
    assert ordered(observed(**CHANGED)).reason == "orders changed"


def test_until_then_it_waits_and_says_until_when() -> None:
    seen = observed(snapshots=pins(orders=6), fresh=NOON - timedelta(seconds=100), takes_seconds=20.0)
    assert waits(seen) == "orders changed; its target lag lets it wait until 2026-01-01 12:03:00"


def test_only_a_table_that_waits_for_its_lag_has_a_moment_at_which_it_is_due() -> None:
    waiting = observed(snapshots=pins(orders=6), fresh=NOON - timedelta(seconds=100))
    assert waits_until(waiting) == NOON + timedelta(seconds=200)
    assert waits_until(observed()) is None
    assert waits_until(observed(**CHANGED)) is None
    assert waits_until(observed(snapshots=pins(orders=6), paused=True)) is None
    assert waits_until(observed(snapshots=pins(orders=6), target_lag=None)) is None


def test_it_begins_as_much_earlier_as_its_refreshes_take() -> None:
    seen = observed(snapshots=pins(orders=6), fresh=NOON - timedelta(seconds=281), takes_seconds=19.0)
    assert ordered(seen).reason == "orders changed"


def test_b_31_right_after_a_refresh_it_is_not_due_again() -> None:
    taken = 20.0
    just_ended = observed(snapshots=pins(orders=6), fresh=NOON - timedelta(seconds=taken), takes_seconds=taken)
    assert "lets it wait" in waits(just_ended)


def test_with_a_lag_of_nothing_every_change_is_followed_at_once() -> None:
    assert ordered(observed(snapshots=pins(orders=6), target_lag=0)).reason == "orders changed"


def test_a_table_that_nobody_wants_fresh_waits_until_it_is_asked_for() -> None:
    seen = observed(**CHANGED, target_lag=None)
    assert waits(seen) == "orders changed, but it is refreshed only when asked for: penstock run shop.daily"
    assert isinstance(refresh(seen, asked_at=NOON), Order)


def test_a_table_that_is_refreshed_by_hand_is_first_built_when_it_is_asked_for() -> None:
    seen = observed(table("shop.daily", "orders", target_lag="manual"), made_from=None, fresh=None, target_lag=None)
    assert waits(seen) == "never built, but it is refreshed only when asked for: penstock run shop.daily"
    assert isinstance(refresh(seen, asked_at=NOON), Order)


def test_whoever_asks_for_it_does_not_wait_for_its_lag() -> None:
    seen = observed(snapshots=pins(orders=6), fresh=NOON)
    assert isinstance(refresh(seen, asked_at=NOON), Order)


def test_a_rerun_is_done_at_once_although_nothing_changed() -> None:
    assert ordered(observed(asked=True)).reason == "a rerun or an invalidation asked for it"
    assert ordered(observed(asked=True, target_lag=None)).reason == "a rerun or an invalidation asked for it"


def test_a_query_that_reads_the_clock_is_refreshed_although_nothing_changed() -> None:
    due = observed(timed=True, fresh=NOON - timedelta(seconds=300))
    assert ordered(due).reason == "its query depends on the time"
    assert "lets it wait" in waits(observed(timed=True, fresh=NOON))


def test_who_asks_has_it_refreshed_for_the_time_only_once() -> None:
    before, after = observed(timed=True, fresh=NOON - timedelta(seconds=1)), observed(timed=True, fresh=NOON)
    assert isinstance(refresh(before, asked_at=NOON), Order)
    assert not isinstance(refresh(after, asked_at=NOON), Order)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"paused": True}, "paused"),
        ({"suspended": "suspended: every attempt fails"}, "suspended: every attempt fails"),
        ({"cancelled": True}, "cancelled: it is not refreshed until penstock resume shop.daily"),
        ({"failed": True}, "failed: it is not tried again until its cause is fixed (see the failed tasks)"),
        ({"in_flight": True}, "already being refreshed"),
        (
            {"missing": {"people": "not built yet", "orders": "it was never observed"}},
            "waiting for orders: it was never observed; waiting for people: not built yet",
        ),
        ({"snapshots": Held("waiting for right")}, "waiting for right"),
    ],
)
def test_what_keeps_it_from_being_refreshed_is_said_whatever_has_changed(
    settings: dict[str, object], said: str
) -> None:
    assert waits(observed(**{**CHANGED, "asked": True, **settings})) == said


def test_what_a_person_stopped_is_said_before_what_failed() -> None:
    assert waits(observed(**CHANGED, failed=True, cancelled=True, paused=True)) == "paused"
    assert "cancelled" in waits(observed(**CHANGED, failed=True, cancelled=True))


def test_a_worker_reads_what_fits_together_when_it_begins() -> None:
    assert recheck_refresh(observed(snapshots=pins(orders=9))) == pins(orders=9)
    held = recheck_refresh(observed(snapshots=Held("waiting for right")))
    assert getattr(held, "reason", None) == "waiting for right"
    assert getattr(recheck_refresh(observed(paused=True)), "reason", None) == "paused"


def test_another_table_in_its_place_is_a_change_of_an_input() -> None:
    replaced = observed(snapshots={"orders": pin("orders", 5, "second")})
    assert changed_inputs(replaced) == ("orders",)
    (check,) = refresh_checks(replaced)
    assert (check.ok, check.value, check.why) == (True, "snapshot 5", "another table stands in its place")


def test_only_direct_inputs_count_as_changed() -> None:
    chain = graph("orders", daily="orders", weekly="daily")
    seen = observed(chain.dynamic_models[1], made_from=pins(daily=2, orders=5), snapshots=pins(daily=2, orders=6))
    assert changed_inputs(seen) == ()


def test_each_input_says_what_was_read_and_what_would_be() -> None:
    model = table("shop.daily", "orders", "people", "items", "prices")
    seen = observed(
        model,
        made_from=pins(orders=5, people=3, prices=1),
        snapshots=pins(orders=6, people=3, items=1),
        missing={"prices": "it was never observed"},
    )
    assert [(check.dependency, check.ok, check.value, check.why) for check in refresh_checks(seen)] == [
        ("orders", True, "snapshot 6", "changed since snapshot 5 was read"),
        ("people", True, "snapshot 3", "not changed since it was read"),
        ("items", True, "snapshot 1", "it has not been read yet"),
        ("prices", False, "none", "it was never observed"),
    ]


def test_where_no_snapshots_fit_together_the_checks_say_so() -> None:
    (check,) = refresh_checks(observed(snapshots=Held("waiting for right")))
    assert (check.ok, check.value, check.why) == (False, "snapshot 5", "waiting for right")


def sizes(keys: int, all_keys: int = 100, **bytes_: int) -> Sizes:
    known = {"read_bytes": 0, "input_bytes": 0, "touched_bytes": 0, "table_bytes": 0}
    return Sizes(keys=keys, all_keys=all_keys, **(known | bytes_))


@pytest.mark.parametrize(("keys", "strategy"), [(29, "affected_keys"), (30, "affected_keys"), (31, "full")])
def test_more_than_the_threshold_of_all_keys_is_everything(keys: int, strategy: str) -> None:
    choice = by_keys_or_full(sizes(keys), 0.3)
    assert choice.strategy == strategy
    assert choice.reason.startswith(f"{keys} of 100 keys changed")


def test_the_reason_names_the_threshold_of_the_author() -> None:
    words = by_keys_or_full(sizes(60), 0.5).words
    assert words == "OVER_THRESHOLD: 60 of 100 keys changed, more than cardinality_threshold 0.5"


def test_who_asks_for_keys_gets_them_above_the_threshold() -> None:
    choice = by_keys_or_full(sizes(99), 0.3, forced=True)
    assert (choice.strategy, choice.code) == ("affected_keys", "FORCED")


def test_changes_without_a_key_are_no_data() -> None:
    choice = by_keys_or_full(sizes(0), 0.3, forced=True)
    assert (choice.strategy, choice.code) == ("no_data", "NO_KEY_AFFECTED")


def test_the_first_keys_of_an_empty_table_are_looked_up() -> None:
    assert by_keys_or_full(sizes(3, all_keys=0), 0.3).strategy == "affected_keys"


def test_few_keys_in_most_files_of_a_large_table_are_dearer_than_everything() -> None:
    large = SMALL_BYTES + 1
    scattered = sizes(5, read_bytes=large, input_bytes=large, touched_bytes=large, table_bytes=large)
    assert by_keys_or_full(scattered, 0.3).code == "SCATTERED"
    small = sizes(5, read_bytes=100, input_bytes=100, touched_bytes=100, table_bytes=100)
    assert by_keys_or_full(small, 0.3).code == "FEW_KEYS"
    assert by_keys_or_full(scattered, 0.3, forced=True).strategy == "affected_keys"
