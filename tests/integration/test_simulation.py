"""Whatever happens to schedulers, workers, events and rows: when it goes quiet, is every table exact?

A story is told by its seed: PENSTOCK_SEED replays one. PENSTOCK_DAYS says how many simulated days are told in all; with
it the seeds are new ones every time.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from random import SystemRandom

import memory_engine
import pytest
from memory_engine import MemoryEngine
from memory_observer import MemoryObserver
from simulated_life import Life, own_story, story
from simulation import simulating

from penstock.planner.change.source_changes import SourceChanges
from penstock.runtime.work import attempt as work
from penstock.state import views
from penstock.state.progress import attempts, invalidations
from penstock.state.progress.folding import CoverageTotal
from penstock.state.progress.publication import Publication
from penstock.state.queue import queue
from penstock.values.changes import UNCHANGED
from penstock.values.intervals import NOTHING, IntervalSet
from penstock.values.records import Generation, GenerationHead, SourceRecord

DAYS_OF_A_STORY = 5.0
DAYS = float(os.environ.get("PENSTOCK_DAYS") or 5)
_FIRST = SystemRandom().randrange(10**6) if os.environ.get("PENSTOCK_DAYS") else 1
SEEDS = (
    [int(os.environ["PENSTOCK_SEED"])]
    if os.environ.get("PENSTOCK_SEED")
    else [_FIRST + number for number in range(max(1, round(DAYS / DAYS_OF_A_STORY)))]
)


@pytest.mark.timeout(max(300, round(10 * DAYS)))
def test_when_it_goes_quiet_every_table_is_exact(dsn: str) -> None:
    """Several stories at a time: one that is told keeps the database and a process busy in turn."""
    sys.stdout.write(f"PENSTOCK_SEED={SEEDS[0]} to {SEEDS[-1]}\n")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 4), multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(partial(own_story, dsn, min(DAYS, DAYS_OF_A_STORY)), SEEDS):
            assert not found, "\n".join(found)


def test_a_seed_tells_the_same_story_twice(dsn: str) -> None:
    logs = []
    for _ in range(2):
        with simulating(dsn, 2) as simulation:
            Life(simulation).live(0.5)
            logs.append(simulation.log)
    assert logs[0] == logs[1]
    assert any("died" in line for line in logs[0])


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    for module in (queue, attempts):
        patch.setattr(module, "fence", lambda *_: None)


def _hull(patch: pytest.MonkeyPatch) -> None:
    read = views._holding

    def filled(head: GenerationHead, fold: CoverageTotal) -> Generation:
        found = read(head, fold)
        edges = found.covered.edges
        return replace(found, covered=IntervalSet((edges[0], edges[-1])) if edges else found.covered)

    patch.setattr(views, "_holding", filled)


def _nothing(_: MemoryObserver, location: str, known: SourceRecord, *__: object) -> SourceChanges:
    return SourceChanges(UNCHANGED, known.expired_pos)


# One mechanism is missing here because nothing breaks without it: the compare-and-set of slots (active scopes cannot
# overlap, so that a slot that fires twice asks for nothing new).
CONTROLS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "stale is what was stale less what is done": lambda patch: patch.setattr(invalidations, "lost", lambda *_: NOTHING),
    "nobody fences": _no_fence,
    "nobody adopts": lambda patch: patch.setattr(MemoryEngine, "find_commit", lambda *_: None),
    "late rows go unnoticed": lambda patch: patch.setattr(MemoryObserver, "_noticed", _nothing),
    "commits raise no event": lambda patch: patch.setattr(Publication, "_tell", lambda *_: None),
    "the hull stands for the set": _hull,
    # most of what it would let through is found stale afterwards; what was made of rows that have expired is lost
    "nobody looks a second time": lambda patch: patch.setattr(work, "recheck", lambda _, order: order),
    "nobody compares files": lambda patch: patch.setattr(memory_engine, "moved", lambda *_: None),
}
SOONEST = {
    "nobody fences": 8,
    "nobody compares files": 9,
    "commits raise no event": 4,
    "nobody looks a second time": 4,
}
"""Which story found it when this was written; others do too, but later."""
SLOW = ("nobody fences", "nobody compares files", "commits raise no event", "nobody looks a second time")
RARE = ("nobody looks a second time",)
"""What is only found in longer stories."""


@pytest.mark.parametrize("mechanism", CONTROLS)
def test_control_without_one_mechanism_it_is_found(dsn: str, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mechanism in SLOW and not os.environ.get("PENSTOCK_DAYS"):
        pytest.skip("it takes a minute, and has a control of its own elsewhere: make chaos plays it")
    CONTROLS[mechanism](monkeypatch)
    days = 3.0 if mechanism in RARE else 1.0
    for seed in (SOONEST.get(mechanism, 1), *range(1, 13)):
        if found := story(dsn, seed, days):
            sys.stdout.write(f"seed {seed}: {found[0][:300]}\n")
            return
    pytest.fail("nothing was found: the simulation is blind to this")
