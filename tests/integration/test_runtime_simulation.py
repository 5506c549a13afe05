"""Whatever happens in whatever order: when it goes quiet, is every table exact?

A story is told by its seed: PENSTOCK_SIMULATION_SEEDS="17 4711" replays two, PENSTOCK_SIMULATION_STEPS tells how long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import number_models
import pytest
from deltalake import DeltaTable
from deployment import Deployment
from faults import Fault, Killed, raising
from fuzzing import FUZZ

from penstock.answers.verify import verify
from penstock.errors import EngineError, UsageError
from penstock.values.intervals import ranges

_SEEDS = " ".join(map(str, range(1, 21))) if FUZZ else "1 3"
SEEDS = [int(seed) for seed in os.environ.get("PENSTOCK_SIMULATION_SEEDS", _SEEDS).split()]
STEPS = int(os.environ.get("PENSTOCK_SIMULATION_STEPS", "30"))
LABELS = ("claimed", "intended", "computed", "files written", "staged", "locked", "table created", "head loaded",
          "delta committed", "recorded", "published")  # fmt: skip
SINGLE = ("select n, value, {{ bounds.start }} as began from {{ ref('raw.numbers') }}", "interval: 25")
MODELS = {"copy": number_models.MODELS["copy"], "single": SINGLE, **number_models.MODELS}
Rows = list[tuple[object, ...]]


class Story:
    """What happens to one deployment, chosen by dice, and what its tables must hold in the end."""

    def __init__(self, trial: Deployment, seed: int) -> None:
        self.trial, self.dice = trial, Random(seed)
        self.values: list[int] = []
        self.log: list[str] = []
        for name, (sql, matter) in MODELS.items():
            trial.model(name, sql, matter)
        self.grow()

    def step(self) -> None:
        happenings: list[tuple[Callable[[], None], int]] = [
            (self.grow, 4),
            (self.run, 3),
            (self.stumble, 5),
            (self.correct, 2),
            (self.rerun, 2),
            (self.tidy, 2),
            (self.damage, 2),
        ]
        (happening,) = self.dice.choices([one for one, _ in happenings], [weight for _, weight in happenings])
        happening()

    def tell(self, text: str) -> None:
        self.log.append(text)

    def grow(self) -> None:
        start, more = len(self.values), self.dice.randrange(1, 40)
        self.tell(f"{more} rows from {start}")
        self.trial.land("numbers", range(start, start + more))
        self.values += [n * 7 for n in range(start, start + more)]

    def run(self) -> None:
        self.tell("run")
        self.trial.run()

    def stumble(self) -> None:
        """A run that dies at some step, or whose engine fails there once."""
        label, after, dies = self.dice.choice(LABELS), self.dice.randrange(4), self.dice.random() < 0.7
        self.tell(f"run that {'dies' if dies else 'fails'} at {label!r}, the {after}. time")
        error = Killed() if dies else EngineError("a hiccup")
        with suppress(Killed):
            self.trial.run(step=Fault(label, raising(error), after=after))

    def correct(self) -> None:
        """Rows of the source change, and somebody who knows says so."""
        start = self.dice.randrange(len(self.values))
        end = min(len(self.values), start + self.dice.randrange(1, 30))
        factor = self.dice.randrange(8, 12)
        self.tell(f"rows {start}..{end} become n * {factor}")
        landing = DeltaTable(str(self.trial.landing("numbers")))
        landing.update({"value": f"n * {factor}"}, predicate=f"n >= {start} and n < {end}")
        self.values[start:end] = [n * factor for n in range(start, end)]
        with self.trial.opened() as workspace:
            for name in ("copy", "single", "buckets"):
                workspace.state.invalidations.invalidate(f"t.{name}", ranges((start, end)), "correction", "test")

    def rerun(self) -> None:
        name, start = self.dice.choice(list(MODELS)), self.dice.randrange(len(self.values))
        self.tell(f"rerun of {name} from {start}")
        with suppress(UsageError):  # it may hold nothing there yet
            self.trial.rerun(name, start, start + self.dice.randrange(1, 50))

    def tidy(self) -> None:
        """Somebody compacts a table of ours, or the source."""
        name = self.dice.choice(["source", *MODELS])
        self.tell(f"compaction of {name}")
        place = str(self.trial.landing("numbers")) if name == "source" else self.place(name)
        if place is not None and DeltaTable.is_deltatable(place):
            DeltaTable(place).optimize.compact()

    def damage(self) -> None:
        """Another program deletes rows of a table of ours, at rest or while a run is at work."""
        name, start = self.dice.choice(list(MODELS)), self.dice.randrange(len(self.values))
        label = self.dice.choice([None, *LABELS])
        self.tell(f"rows of {name} vanish from {start} on" + (f" during a run, at {label!r}" if label else ""))

        def vanish() -> None:
            place = self.place(name)
            if place is not None and DeltaTable.is_deltatable(place):
                DeltaTable(place).delete(f"n >= {start} and n < {start + 20}")

        if label is None:
            vanish()
        else:
            self.trial.run(step=Fault(label, vanish, after=self.dice.randrange(4)))

    def place(self, name: str) -> str | None:
        with self.trial.opened() as workspace:
            found = workspace.state.views.whole().current.get(f"t.{name}")
            return None if found is None else workspace.resolver.table(found.location)

    def reconcile(self) -> None:
        """Runs until one has nothing to do."""
        for _ in range(6):
            summary = self.trial.run()
            if not summary.tasks and not summary.failed:
                return
        raise AssertionError(f"it never goes quiet: {summary}")

    def expected(self) -> dict[str, Rows]:
        """Every table, computed in the plainest way there is."""
        v = self.values
        whole = {size: len(v) // size * size for size in (10, 20, 25)}
        buckets = [(n, sum(v[n : n + 10])) for n in range(0, len(v), 10)]
        # a roll-up reads what its parent covers: the open bucket ends where the source does
        totals = [(n, sum(v[n : n + 40])) for n in range(0, len(v) // 40 * 40, 40)]
        return {
            "copy": [(n, v[n]) for n in range(whole[10])],
            "single": sorted((n // 25 * 25, n, v[n]) for n in range(whole[25])),
            "buckets": list(buckets),
            "rolling": [(n, sum(v[max(0, n - 14) : n + 1])) for n in range(whole[20])],
            "totals": list(totals),
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_when_it_goes_quiet_every_table_is_exact_and_no_task_has_two_commits(
    tmp_path: Path, dsn: str, seed: int
) -> None:
    trial = Deployment.empty(tmp_path, dsn)
    trial.source("numbers")
    story = Story(trial, seed)
    for _ in range(STEPS):
        story.step()
    story.reconcile()
    told = f"seed {seed}:\n" + "\n".join(story.log)
    for name, wanted in story.expected().items():
        assert trial.rows(name) == wanted, f"{name} after {told}"
        if wanted:  # a short story may not fill a single chunk
            newest = DeltaTable(trial.place(name)).to_pyarrow_table().num_rows
            assert newest == len(wanted), f"{name} shows others {newest} rows after {told}"
        assert trial.most_commits(name) <= 1, f"{name} after {told}"
        assert not trial.stale(name), f"{name} after {told}"
    with trial.opened() as workspace:
        found = verify(workspace, workspace.interval_models(()), None, None).models
    assert not any(verdict.differences or verdict.unverifiable for verdict in found), told
