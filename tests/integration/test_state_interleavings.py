"""Every order in which publications, invalidations and their neighbours can meet, transaction by transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from observations import record
from orderings import orders
from reaches import same

from penstock.planner.change import pins
from penstock.planner.change.coverage import Coverage, invalidated, published
from penstock.state.database.statements import statements
from penstock.state.progress import events, invalidations
from penstock.values.changes import Changed
from penstock.values.intervals import NOTHING, IntervalSet, ranges
from penstock.values.tasks import Lease

if TYPE_CHECKING:
    from conftest import Story

EVERY_STEP = os.environ.get("PENSTOCK_FUZZ") == "1"
Actor = Iterator[None]


# one transaction per step


@dataclass
class Account:
    """What the pure functions say, position by position where an input's snapshot decides."""

    covered: IntervalSet = NOTHING
    stale: IntervalSet = NOTHING
    told: list[tuple[str, int, IntervalSet]] = field(default_factory=list)
    """Marks so far: ("snapshot", n, where) or ("epoch", number of the step, where)."""
    made: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By covered position: the snapshot that was read, and the step of the intent."""

    def published(self, scope: IntervalSet, snapshot: int, intent: int) -> None:
        lost = (where for kind, mark, where in self.told if _older(kind, mark, snapshot, intent))
        met = IntervalSet.of(part for where in lost for part in where)
        self._keep(published(self.covered, self.stale, scope, met))
        self.made |= {p: (snapshot, intent) for part in scope for p in range(part.start, part.end)}

    def event(self, snapshot: int, where: IntervalSet) -> None:
        """Rows that were made from that snapshot, or a later one, have it already."""
        behind = ranges(*((p, p + 1) for p, (read, _) in self.made.items() if read < snapshot))
        self._keep(invalidated(self.covered, self.stale, where & behind))
        self.told.append(("snapshot", snapshot, where))

    def invalidation(self, step: int, where: IntervalSet) -> None:
        self._keep(invalidated(self.covered, self.stale, where))
        self.told.append(("epoch", step, where))

    def _keep(self, coverage: Coverage) -> None:
        self.covered, self.stale = coverage

    def wrongly_fresh(self, covered: IntervalSet, stale: IntervalSet) -> list[int]:
        """Fresh positions that were computed from inputs older than a mark that met them."""
        return [
            p
            for p, (snapshot, intent) in self.made.items()
            if p in covered - stale
            and any(p in where and _older(kind, mark, snapshot, intent) for kind, mark, where in self.told)
        ]


def _older(kind: str, mark: int, snapshot: int, intent: int) -> bool:
    return snapshot < mark if kind == "snapshot" else intent < mark


@dataclass
class TemplateContext:
    """Two tasks, an observation and an invalidation by a person, at positions of their own."""

    story: Story
    at: int
    account: Account
    generation: int
    observed: int
    """The snapshot of the source that everybody sees now."""
    step: int = 0

    def __post_init__(self) -> None:
        self.first = self.observed

    def moved(self, *parts: tuple[int, int]) -> IntervalSet:
        return ranges(*((self.at + start, self.at + end) for start, end in parts))

    def tasks(self, *spans: tuple[int, int]) -> list[Lease]:
        orders = [self.story.order((self.at + start, self.at + end)) for start, end in spans]
        assert self.story.state.queue.enqueue(orders, {"core.a": self.generation}) == len(orders)
        return [self.story.claim() for _ in orders]

    def attempt(self, lease: Lease, read: int | None) -> Actor:
        """`read`: the snapshot that was seen when the task was claimed; None looks at the moment of the intent."""
        snapshot, intent = self.observed if read is None else read, self.step
        epoch = self.story.state.attempts.intend(lease, self.story.frontier(lease, snapshot), None, "")
        yield
        # equal rows: no event of its own, which no model here would read
        self.story.record(lease, self.story.commit(lease, epoch, snapshot, changed=False))
        self.account.published(lease.order.scope, snapshot, intent)
        yield

    def one_after_the_other(self, first: Lease, read: int | None) -> Actor:
        """A second task about positions of the first: it cannot be asked for before the first has ended."""
        yield from self.attempt(first, read)
        [lease], seen = self.tasks((5, 15)), self.observed
        yield
        yield from self.attempt(lease, seen)

    def observation(self) -> Actor:
        changed, after = self.moved((3, 12)), self.observed + 1
        assert self.story.state.sources.record(record(after), self.observed, Changed(changed))
        self.observed = after
        yield
        self.story.state.events.handle(same)
        self.account.event(after, changed)
        yield

    def invalidation(self) -> Actor:
        self.story.state.invalidations.invalidate("core.a", self.moved((5, 15)), "rerun", "me")
        self.account.invalidation(self.step, self.moved((5, 15)))
        yield

    def play(self, order: Sequence[int], actors: Sequence[Actor]) -> None:
        for actor in order:
            self.step += 1
            next(actors[actor])
        here = self.moved((0, 1000))
        generation = self.story.generation()
        covered, stale = generation.covered & here, generation.stale & here
        assert (covered, stale) == (self.account.covered, self.account.stale), order
        assert not self.account.wrongly_fresh(covered, stale), order


def scenes(story: Story) -> Iterator[TemplateContext]:
    story.state.sources.record(record(1), None)
    generation = story.generation().no
    for number in range(100_000):
        yield TemplateContext(story, 1000 * number, Account(), generation, observed=number + 1)


def apart(story: Story, *, every_step: bool = EVERY_STEP) -> int:
    """Two tasks beside each other; one reads what was seen before anything happened, the other what is seen now.

    The task that was claimed first may look at the state at any moment before its intent; that is only one more step.
    """
    stage = scenes(story)
    played = 0
    for order in orders(2, 2, 2, 1):
        for swapped in (False, True) if every_step else (False,):
            scene = next(stage)
            one, other = scene.tasks((0, 10), (10, 20))
            early, late = scene.attempt(one, scene.first), scene.attempt(other, None)
            both = (late, early) if swapped else (early, late)
            scene.play(order, (*both, scene.observation(), scene.invalidation()))
            played += 1
    return played


def in_a_row(story: Story) -> int:
    """Two tasks that overlap, so that one follows the other; the first looked at the start, or looks when it begins."""
    stage = scenes(story)
    played = 0
    for order in orders(5, 2, 1):
        for looked_before in (True, False):
            scene = next(stage)
            chain = scene.one_after_the_other(scene.tasks((0, 10))[0], scene.first if looked_before else None)
            scene.play(order, (chain, scene.observation(), scene.invalidation()))
            played += 1
    return played


def test_two_tasks_apart_in_every_order_leave_nothing_wrongly_fresh(story: Story) -> None:
    assert apart(story) >= 630


def test_two_tasks_in_a_row_in_every_order_leave_nothing_wrongly_fresh(story: Story) -> None:
    assert in_a_row(story) == 336


def forgets_what_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """`stale = stale - r` alone."""
    monkeypatch.setattr(invalidations, "lost", lambda *_: NOTHING)


def compares_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (invalidations, pins):
        monkeypatch.setattr(
            module, "too_early", lambda asked, frontier, _: pins.compare_pin(frontier, asked.change) == "behind"
        )


def compares_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "compare_pin", lambda *_: "unknown")


def marks_whatever_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also rows that were made from the changed rows themselves: work for nothing."""
    monkeypatch.setattr(events, "compare_pin", lambda *_: "behind")


def asks_nothing_of_running_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        statements(), "active_ranges", "select ranges from task where generation = %(generation)s and 1 = 0"
    )


def is_never_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (invalidations, pins):
        monkeypatch.setattr(module, "too_early", lambda *_: False)


@pytest.mark.parametrize(
    "mutant",
    [
        forgets_what_was_lost,
        compares_no_epoch,
        compares_no_snapshot,
        marks_whatever_is_covered,
        asks_nothing_of_running_work,
        is_never_too_early,
    ],
)
@pytest.mark.parametrize("play", [apart, in_a_row])
def test_a_publication_that_forgets_is_found_out(
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    play: Callable[[Story], int],
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play(story)
