"""Fair claims: whoever has work is served within a bounded number of claims, whatever the others have piled up."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penstock.state.database.statements import statements
from penstock.values.records import Definition
from penstock.values.tasks import Lane, Lease

if TYPE_CHECKING:
    from conftest import Story

BACKLOG = 10_000
HEAD_START = 8
_PLACES = itertools.count(10_000_000, 10)


def models(story: Story, count: int) -> list[str]:
    names = [f"core.m{i:03}" for i in range(count)]
    made = [Definition(name, "interval", name, "second", "ts", {}, retries=1000) for name in names]
    story.state.projects.apply(f"with {count}", b"", {}, (*story.definitions(), *made))
    return names


def pile_up(story: Story, model: str, lane: Lane, count: int) -> None:
    """Tasks that have been waiting for an hour."""
    story.execute(
        "insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts, run_after) "
        "select g.model, g.no, %s, int8multirange(r), array[r], '{}', '', 1001, clock() - interval '1 hour' "
        "from generation g, generate_series(1, %s) i, int8range(20 * i, 20 * i + 10) r where g.model = %s",
        lane,
        count,
        model,
    )
    story.execute("insert into turn (model, lane) values (%s, %s) on conflict do nothing", model, lane)


def ask(story: Story, model: str, lane: Lane) -> None:
    place = next(_PLACES)
    assert story.enqueue(story.order((place, place + 10), model=model, lane=lane)) == 1


def serve(story: Story, failing: str | None = None) -> tuple[str, Lane]:
    """Claim and be done with it; a model that fails is due again at once."""
    lease = story.state.queue.claim("w")
    assert lease is not None
    finish(story, lease, failing)
    return lease.order.model, lease.order.lane


def finish(story: Story, lease: Lease, failing: str | None) -> None:
    if lease.order.model == failing:
        assert story.state.queue.fail(lease, "engine", "no", story.cost, most_pause_seconds=0) == "retrying"
    else:
        story.state.queue.release(lease, "done")


def claims_until(story: Story, wanted: tuple[str, Lane], most: int, failing: str | None = None) -> int:
    for number in range(1, most + 1):
        if serve(story, failing) == wanted:
            return number
    raise AssertionError(f"{wanted} was not served within {most} claims")


def crowd(story: Story, backlog: int = BACKLOG) -> tuple[str, str, str]:
    """One model with a long backlog, one that always fails, and one that has nothing to do yet."""
    long, failing, other = models(story, 3)
    pile_up(story, long, "backfill", backlog)
    ask(story, failing, "forward")
    ask(story, failing, "repair")
    for _ in range(20):
        serve(story, failing)
    return long, failing, other


def order_by(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """The broken twin of the claim: another order of lanes."""
    usual = "u.served - case u.lane when 'forward' then 8 when 'repair' then 4 else 0 end"
    assert usual in statements()["claim"]
    monkeypatch.setitem(statements(), "claim", statements()["claim"].replace(usual, key))


PRIORITY_FIRST = "case u.lane when 'forward' then 0 when 'repair' then 1 else 2 end"
OLDEST_FIRST = "0"


# nobody waits for a backlog


@pytest.mark.parametrize("same", [True, False], ids=["of the same model", "of another model"])
def test_forward_is_served_within_a_bounded_number_of_claims_whatever_the_backlog(story: Story, same: bool) -> None:
    long, failing, other = crowd(story)
    for _ in range(3):
        ask(story, long if same else other, "forward")
        claims_until(story, (long if same else other, "forward"), 4 + HEAD_START, failing)


@pytest.mark.parametrize("same", [True, False], ids=["of the same model", "of another model"])
def test_oldest_first_would_let_a_backlog_hold_up_forward(
    story: Story, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    order_by(monkeypatch, OLDEST_FIRST)
    long, failing, other = crowd(story, 200)
    ask(story, long if same else other, "forward")
    with pytest.raises(AssertionError, match="not served within"):
        claims_until(story, (long if same else other, "forward"), 100, failing)


def endless_forward(story: Story, lanes: int) -> str:
    """Models whose forward work never ends; the first of them has a backlog too."""
    names = models(story, lanes)
    pile_up(story, names[0], "backfill", 100)
    for name in names:
        for _ in range(12):
            ask(story, name, "forward")
    return names[0]


def test_backfill_is_served_within_the_same_bound_although_forward_never_ends(story: Story) -> None:
    lanes = 5
    long = endless_forward(story, lanes)
    for _ in range(4):
        claims_until(story, (long, "backfill"), lanes + 1 + HEAD_START)


def test_priority_first_would_starve_backfill(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    order_by(monkeypatch, PRIORITY_FIRST)
    long = endless_forward(story, 5)
    with pytest.raises(AssertionError, match="not served within"):
        claims_until(story, (long, "backfill"), 5 + 1 + HEAD_START)


def test_a_model_that_always_fails_takes_no_more_than_its_turn(story: Story) -> None:
    failing, *others = models(story, 4)
    pile_up(story, failing, "forward", 50)
    for name in others:
        pile_up(story, name, "forward", 50)
    found = Counter(serve(story, failing)[0] for _ in range(80))
    assert set(found.values()) == {20}


def test_ten_models_share_the_claims_evenly(story: Story) -> None:
    names = models(story, 10)
    for number, name in enumerate(names):
        pile_up(story, name, "backfill", 30 * (number + 1))
    for claims in (7, 20, 33, 41):
        found = Counter(dict.fromkeys(names, 0))
        found.update(serve(story)[0] for _ in range(claims))
        assert max(found.values()) - min(found.values()) <= 1


@pytest.mark.parametrize("key", [OLDEST_FIRST, PRIORITY_FIRST])
def test_another_order_would_not_share_evenly(story: Story, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    order_by(monkeypatch, key)
    names = models(story, 10)
    for name in names:
        pile_up(story, name, "backfill", 30)
    found = Counter(dict.fromkeys(names, 0))
    found.update(serve(story)[0] for _ in range(33))
    assert max(found.values()) - min(found.values()) > 1


def test_who_was_idle_for_long_gets_one_claim_ahead_and_not_all_that_it_missed(story: Story) -> None:
    busy, idle = models(story, 2)
    pile_up(story, busy, "forward", 60)
    for _ in range(40):
        serve(story)
    pile_up(story, idle, "forward", 10)
    assert [serve(story)[0] for _ in range(4)] == [idle, busy, idle, busy]


# who may be claimed at all


def test_a_task_that_somebody_is_just_changing_lets_the_next_one_through(story: Story) -> None:
    first, second = models(story, 2)
    for name in (first, second):
        for _ in range(2):
            ask(story, name, "forward")
    story.execute("update turn set served = 7 where model = %s", second)
    other = story.connect()
    with other.database.transaction():
        held = other.database.connection.execute(
            "select id from task where model = %s order by id limit 1 for update", (first,)
        ).fetchall()
        lease = story.state.queue.claim("w")
        assert lease is not None
        assert (lease.order.model, [(lease.task,)] == held) == (first, False)
        other.database.connection.execute("select from task where model = %s for update skip locked", (first,))
        lease = story.state.queue.claim("w")
        assert lease is not None
        assert lease.order.model == second


def test_what_is_not_due_is_not_claimed_and_does_not_hide_what_is(story: Story) -> None:
    [name] = models(story, 1)
    pile_up(story, name, "forward", 3)
    story.execute("update task set state = 'retrying', run_after = clock() + interval '1 hour'")
    assert story.state.queue.claim("w") is None
    ask(story, name, "forward")
    assert story.state.queue.claim("w") is not None
    assert story.state.queue.claim("w") is None


def test_limits_pauses_and_removals_hold_for_every_lane(story: Story) -> None:
    busy, paused, removed, free = models(story, 4)
    for name in (busy, paused, removed, free):
        pile_up(story, name, "forward", 5)
    story.execute("update model set max_inflight = 2 where id = %s", busy)
    story.execute("update model set desired = 'paused' where id = %s", paused)
    story.execute("update model set removed_at = clock() where id = %s", removed)
    found: Counter[str] = Counter()
    while lease := story.state.queue.claim("w"):
        found[lease.order.model] += 1
    assert found == {busy: 2, free: 4}
    assert story.state.queue.claim("w", [paused, removed]) is None
