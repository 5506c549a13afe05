"""Are the demo's landing tables what its models and its story need, the same rows every time?"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from penstock.errors import UsageError
from penstock.runtime.place import demo
from penstock.runtime.place.scaffold import create

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One generated project that the reading tests share."""
    return create(tmp_path_factory.mktemp("beacon") / "a demo", demo=True).directory


def delta(project: Path, name: str) -> DeltaTable:
    return DeltaTable(str(project / "landing" / name))


def table(project: Path, name: str) -> pa.Table:
    order = [("slot", "ascending"), ("client", "ascending")]
    if name == demo.REGISTRY:
        order = [("observed_at", "ascending"), ("validator_index", "ascending")]
    return delta(project, name).to_pyarrow_table().sort_by(order)


def digest(project: Path, name: str) -> str:
    rows = json.dumps(table(project, name).to_pylist(), default=str)
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def test_every_machine_makes_the_same_rows(project: Path) -> None:
    assert (table(project, demo.BLOCKS).num_rows, digest(project, demo.BLOCKS)) == (5018, "ecab7fd02faf36e2")
    assert (table(project, demo.REGISTRY).num_rows, digest(project, demo.REGISTRY)) == (449, "b626dcb4fc1d4d7c")


def test_a_block_has_one_to_five_observations_by_different_clients(project: Path) -> None:
    clients: dict[int, list[str]] = defaultdict(list)
    facts: dict[int, set[tuple[object, ...]]] = defaultdict(set)
    for row in table(project, demo.BLOCKS).to_pylist():
        clients[row["slot"]].append(row["client"])
        facts[row["slot"]].add((row["slot_start"], row["block_root"], row["validator_index"]))
    assert {len(seen) for seen in clients.values()} == {1, 2, 3, 4, 5}
    assert all(len(seen) == len(set(seen)) for seen in clients.values())
    assert all(len(fact) == 1 for fact in facts.values())


def test_between_15_and_20_percent_of_the_slots_are_skipped(project: Path) -> None:
    slots = set(table(project, demo.BLOCKS)["slot"].to_pylist())
    assert 0.15 < 1 - len(slots) / (demo.MINUTES * 5) < 0.20


def test_the_data_start_at_the_origin_and_end_inside_an_hour(project: Path) -> None:
    starts = table(project, demo.BLOCKS)["slot_start"].to_pylist()
    assert START <= min(starts) < START + timedelta(minutes=1)
    assert max(starts) == START + timedelta(hours=6, minutes=39, seconds=48)
    assert all((start - START).total_seconds() % 12 == 0 for start in starts)


def test_times_are_delta_timestamps_with_a_zone(project: Path) -> None:
    for name, column in ((demo.BLOCKS, "slot_start"), (demo.REGISTRY, "observed_at")):
        fields = {
            field["name"]: field["type"] for field in json.loads(delta(project, name).schema().to_json())["fields"]
        }
        assert fields[column] == "timestamp"


def test_every_validator_is_known_at_the_origin_and_some_change_hands(project: Path) -> None:
    rows = table(project, demo.REGISTRY).to_pylist()
    assert [row["validator_index"] for row in rows if row["observed_at"] == START] == list(range(50))
    held: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        held[row["validator_index"]].append(row["entity"])
    changes = sum(a != b for entities in held.values() for a, b in pairwise(entities))
    assert 20 < changes < 60


def test_a_validator_has_one_entity_at_a_time(project: Path) -> None:
    rows = table(project, demo.REGISTRY).to_pylist()
    assert max(Counter((row["validator_index"], row["observed_at"]) for row in rows).values()) == 1


def test_the_entities_reach_as_far_as_the_blocks_less_their_lag(project: Path) -> None:
    newest_block = max(table(project, demo.BLOCKS)["slot_start"].to_pylist())
    newest_entity = max(table(project, demo.REGISTRY)["observed_at"].to_pylist())
    assert newest_entity >= newest_block - timedelta(minutes=2)


def test_a_live_writer_made_several_commits_in_order(project: Path) -> None:
    blocks = delta(project, demo.BLOCKS)
    assert blocks.version() == demo.COMMITS - 1
    ends = []
    for version in range(demo.COMMITS):
        blocks.load_as_version(version)
        ends.append(max(blocks.to_pyarrow_table(columns=["slot_start"])["slot_start"].to_pylist()))
    assert ends == sorted(set(ends))


def test_the_relay_has_no_table_at_all(project: Path) -> None:
    assert sorted(path.name for path in (project / "landing").iterdir()) == [demo.BLOCKS, demo.REGISTRY]


def test_generating_again_changes_nothing(project: Path) -> None:
    before = [delta(project, name).version() for name in (demo.BLOCKS, demo.REGISTRY)]
    demo.generate(project)
    assert [delta(project, name).version() for name in (demo.BLOCKS, demo.REGISTRY)] == before


def test_an_interrupted_generation_is_finished_with_the_same_rows(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(demo, "MINUTES", 100)
        demo.generate(tmp_path)
        patch.setattr(demo, "_blocks_minute", lambda minute: iter(()))  # stopped between the two tables
        demo._write_until(tmp_path, 150)
    demo.generate(tmp_path)
    for name in (demo.BLOCKS, demo.REGISTRY):
        assert digest(tmp_path, name) == digest(project, name)


def test_extending_appends_the_next_minutes_however_they_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "MINUTES", 50)
    once, twice = tmp_path / "once", tmp_path / "twice"
    for directory in (once, twice):
        demo.generate(directory)
    added = demo.extend(once, 25)
    assert added == demo.extend(twice, 7) + demo.extend(twice, 18)
    for name in (demo.BLOCKS, demo.REGISTRY):
        assert digest(once, name) == digest(twice, name)
    assert delta(once, demo.BLOCKS).version() == 1
    newest = max(table(once, demo.BLOCKS)["slot_start"].to_pylist())
    assert newest == START + timedelta(minutes=74, seconds=48)


def test_an_extended_table_is_not_generated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MINUTES", 50)
    demo.generate(tmp_path)
    demo.extend(tmp_path, 1)
    demo.generate(tmp_path)
    assert delta(tmp_path, demo.BLOCKS).version() == 1


def test_late_rows_are_about_blocks_that_are_hours_old(tmp_path: Path) -> None:
    demo.generate(tmp_path)
    before, added = table(tmp_path, demo.BLOCKS), demo.land_late(tmp_path)
    late = table(tmp_path, demo.BLOCKS).filter(pc.field("client") == demo.LATE_CLIENT)
    assert 10 < added == late.num_rows <= 20
    assert set(late["slot_start"].to_pylist()) <= set(before["slot_start"].to_pylist())
    times = late["slot_start"].to_pylist()
    assert START + timedelta(minutes=130) <= min(times) < max(times) < START + timedelta(minutes=134)


def test_only_a_demo_gets_late_rows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no demo data"):
        demo.land_late(tmp_path)


def test_only_a_demo_can_be_extended(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no demo data"):
        demo.extend(tmp_path, 10)
    with pytest.raises(UsageError, match="at least 1"):
        demo.extend(tmp_path, 0)


def test_the_python_in_the_starters_readme_fills_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = create(tmp_path / "shop", demo=False).directory
    block = re.search(r"```python\n(.*?)```", (directory / "README.md").read_text(), re.DOTALL)
    assert block is not None
    monkeypatch.chdir(directory)
    exec(compile(block[1], "README.md", "exec"), {})
    assert delta(directory, "orders").to_pyarrow_table().num_rows == 185
