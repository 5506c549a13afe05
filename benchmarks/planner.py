"""How long does one plan take for a model with a million intervals?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.observation import Input, Observation
from penstock.planner.readiness.plan import plan, recheck
from penstock.planner.readiness.ready import gaps
from penstock.values.intervals import MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.values.models import Chunking, Dependency, IntervalModel
from penstock.values.tasks import Order
from results import arguments, report

HOUR = 3600
BEGIN = 1_700_000_000 // HOUR * HOUR
ROUNDS = 5
INTERVALS = 1_000_000


def cells(count: int, step: int = 1, first: int = 0) -> IntervalSet:
    """Every `step`-th hour of `count`, beginning with the one numbered `first`."""
    if step == 1:
        return IntervalSet((BEGIN + first * HOUR, BEGIN + count * HOUR))
    starts = range(BEGIN + first * HOUR, BEGIN + count * step * HOUR, step * HOUR)
    return IntervalSet(tuple([edge for start in starts for edge in (start, start + HOUR)]))


def observation(parent: IntervalSet, covered: IntervalSet, *, widens: bool) -> Observation:
    model = IntervalModel(
        name="bench.child",
        file="child.sql",
        sql="",
        position="hour",
        axis="second",
        interval=Chunking(HOUR, HOUR, HOUR),
        dependencies=((Dependency("bench.parent"),),),
        widens=widens,
    )
    first = BEGIN if parent.first == MIN_POSITION else parent.first
    return Observation(model, {"bench.parent": Input("bench.parent", "interval", parent, first)}, covered)


def cases(count: int) -> dict[str, Observation]:
    whole = IntervalSet((MIN_POSITION, BEGIN + 2 * count * HOUR))
    odd, even = cells(count, 2, 1), cells(count, 2)
    behind = IntervalSet(odd.edges[:-2000])
    return {
        "contiguous, up to date": observation(whole, cells(2 * count), widens=False),
        "contiguous, never run": observation(whole, NOTHING, widens=False),
        "contiguous, never run, widened": observation(whole, NOTHING, widens=True),
        "contiguous, one hour behind": observation(whole, cells(2 * count - 1), widens=False),
        "fragmented coverage, a million gaps": observation(whole, even, widens=False),
        "fragmented parent, never run": observation(odd, NOTHING, widens=False),
        "both fragmented, up to date": observation(odd, odd, widens=False),
        "both fragmented, 1,000 behind": observation(odd, behind, widens=False),
        "both fragmented, nothing in common": observation(odd, even, widens=False),
    }


def milliseconds(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        act()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


COLUMNS = ("case", "orders", "chunks", "plan ms", "explain ms", "recheck ms", "gaps ms")


def measured(name: str, seen: Observation) -> tuple[object, ...]:
    orders = [decision for decision in plan(seen) if isinstance(decision, Order)]
    at = BEGIN + 1001 * HOUR
    order = orders[0] if orders else Order("bench.child", "repair", (Interval(at, at + HOUR),), ("bench.parent",), "")
    acts = (lambda: plan(seen), lambda: explain(seen, at), lambda: recheck(seen, order), lambda: gaps(seen))
    taken = [round(milliseconds(act), 1) for act in acts]
    return (name, len(orders), sum(len(order.chunks) for order in orders), *taken)


def main() -> None:
    chosen = arguments(__doc__ or "")
    rows = [measured(name, seen) for name, seen in cases(INTERVALS).items()]
    report(f"planner at {INTERVALS:,} intervals, median of {ROUNDS}", COLUMNS, rows, chosen.json)


if __name__ == "__main__":
    main()
