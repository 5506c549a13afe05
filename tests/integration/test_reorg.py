"""A fork that is noticed while others work: the models and the follower of examples/reorg, without Spark."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from deltalake import DeltaTable
from deployment import Deployment
from faults import Fault

from penstock.engine.observe import changes
from penstock.runtime.process.progress import Silent
from penstock.runtime.redo.invalidate import Words, record, report
from penstock.runtime.serve.run import observe
from penstock.values.intervals import IntervalSet, ranges

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "reorg"
FORK = ranges((995, 1006))
CONSUMERS = ("alerts", "alerts_standing", "transfers_enriched")
LABELS = {0: "exchange", 1: "bridge", 2: "miner"}


@dataclass
class Chain:
    """The example's project in a database of the tests."""

    trial: Deployment
    follower: ModuleType

    def fork(self) -> None:
        self.follower.fork(995, 1005, 1)

    def fork_seen(self) -> None:
        """It happens, and another process sees it."""
        self.fork()
        with self.trial.opened() as workspace:
            observe(workspace, Silent())

    def report(self, key: str) -> IntervalSet:
        """What `penstock invalidate` does; whom it asked about what, all together."""
        words = Words("reorg", "follower", key)
        with self.trial.opened() as workspace:
            asked = report(workspace, workspace.project.graph.models["raw.blocks"], FORK, None, words)
            if not asked.known:
                record(workspace, asked, words)
            return IntervalSet.of(part for one in asked.recompute for part in one.scope)

    def blocks(self) -> list[dict[str, object]]:
        return list(DeltaTable(str(self.follower.LANDING / "blocks")).to_pyarrow_table().to_pylist())

    def repairs(self) -> list[str]:
        return sorted(task.model for task in self.trial.tasks() if task.lane == "repair")

    def closed(self) -> set[object]:
        return {closed for (closed,) in self.trial.execute("select closed_at is not null from invalidation")}

    def wrong(self) -> list[str]:
        """The models whose rows are not those of the blocks that are there now."""
        now = self.blocks()
        rows = [(b["amount"], b["block_hash"], b["block_number"], LABELS[int(str(b["sender"]))]) for b in now]
        transfers = sorted((*row, b["sender"]) for row, b in zip(rows, now, strict=True))
        alerts = sorted(
            (b["amount"], b["block_hash"], b["block_number"], "large") for b in now if int(str(b["amount"])) >= 90
        )
        tens = {
            first: [int(str(b["amount"])) for b in now if int(str(b["block_number"])) // 10 == first // 10]
            for first in range(700, 1010, 10)
        }
        trial = self.trial
        found = {
            "transfers_enriched": trial.rows("transfers_enriched") == transfers,
            "alerts": set(alerts) <= set(trial.rows("alerts")),
            "alerts_standing": trial.rows("alerts_standing") == alerts,
            "volume": trial.rows("volume") == sorted((sum(found), first, 10) for first, found in tens.items()),
        }
        return [name for name, right in found.items() if not right]


@pytest.fixture
def chain(tmp_path: Path, dsn: str) -> Chain:
    """With everything built up to block 999; the newest blocks come later."""
    trial = Deployment.empty(tmp_path, dsn)
    settings = tmp_path / "penstock.yml"
    settings.write_text(settings.read_text() + "vars: {large: 90}\n")
    for file in EXAMPLE.rglob("models/**/*.*"):
        text = file.read_text().replace("chain.", "t.").replace("./landing", str(tmp_path / "landing"))
        trial.write(str(file.relative_to(EXAMPLE)), text)
    spec = importlib.util.spec_from_file_location("follower", EXAMPLE / "follower.py")
    assert spec is not None
    assert spec.loader is not None
    follower = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(follower)
    follower.LANDING = tmp_path / "landing"  # type: ignore[attr-defined]
    follower.follow(999)
    trial.run()
    return Chain(trial, follower)


@pytest.mark.parametrize("step", ["claimed", "staged", "delta committed"])
def test_a_reorg_while_the_newest_blocks_are_computed_ends_right(chain: Chain, step: str) -> None:
    chain.follower.follow(1010)
    summary = chain.trial.run(step=Fault(step, chain.fork_seen))
    assert summary.failed == 0
    assert chain.wrong() == []
    assert not any(chain.trial.stale(name) for name in (*CONSUMERS, "volume", "compacted"))
    assert [chain.trial.status(f"t.{name}")["cursor"] for name in CONSUMERS] == [1011] * 3
    assert chain.trial.covered("compacted") == ranges((700, 900))
    assert "t.compacted" not in chain.repairs()


def test_control_a_reorg_that_nobody_sees_in_the_log_leaves_wrong_rows(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "log_changes", lambda *_, **__: changes.NO_CHANGES)
    chain.follower.follow(1010)
    chain.trial.run(step=Fault("staged", chain.fork_seen))
    assert chain.wrong()


def test_s2_39_a_reorg_that_is_seen_and_reported_in_any_order_is_one_recompute(chain: Chain) -> None:
    chain.follower.follow(1010)
    chain.trial.run()
    chain.fork()
    assert chain.report("on time") == FORK
    assert not chain.report("on time")
    assert chain.trial.run().failed == 0
    assert not chain.report("too late")  # seen in the log, done, and now reported once more
    assert chain.trial.run().tasks == 0
    assert chain.repairs() == sorted(f"t.{name}" for name in (*CONSUMERS, "volume"))
    assert chain.wrong() == []


def test_s2_39_a_report_that_comes_when_the_chain_has_gone_on_is_nothing_new(chain: Chain) -> None:
    chain.follower.follow(1010)
    chain.fork()
    chain.trial.run()
    chain.follower.follow(1015)
    chain.trial.run()
    repaired = chain.repairs()
    assert not chain.report("long after")
    assert chain.trial.run().tasks == 0
    assert chain.repairs() == repaired


def test_s2_42_an_invalidation_is_closed_when_the_last_consumer_is_done(chain: Chain) -> None:
    chain.follower.follow(1010)
    chain.trial.run()
    chain.fork()
    for name in CONSUMERS:
        assert chain.closed() <= {False}
        chain.trial.run(f"t.{name}")
    chain.trial.run()
    assert chain.closed() == {True}
    assert chain.wrong() == []
