"""The stories of examples/, told as their pages tell them, and what holds after each part."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from documents import ROOT, blocks_in, matches, sections

from penstock.runtime.place.workspace import open_workspace

FORK = (995, 1006)
REPAIRED = {"chain.alerts", "chain.alerts_standing", "chain.transfers_enriched", "chain.volume"}


@dataclass(frozen=True)
class Story:
    """A copy of an example, and its page, read section by section."""

    shell: Any
    page: Mapping[str, str]

    def tell(self, heading: str) -> None:
        """Type what the section shows, and compare what is printed."""
        for block in blocks_in(self.page[heading], "console"):
            for (program, *arguments), shown in block.typed:
                printed = self._typed(program, arguments)
                if shown and not matches(shown, printed):
                    difference = "\n".join(difflib.ndiff(shown, printed.rstrip().split("\n")))
                    pytest.fail(f"{heading}: {program} {' '.join(arguments)} printed something else\n{difference}")

    def _typed(self, program: str, arguments: list[str]) -> str:
        if program == "penstock":
            return str(self.shell(*arguments).out)
        assert program == "python", program
        return str(self.shell.python(*arguments))

    def models(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.shell.json("status")["models"]}

    def tasks(self, lane: str) -> list[dict[str, Any]]:
        return [task for task in self.shell.json("tasks", "--history")["tasks"] if task["lane"] == lane]

    def keys(self) -> dict[str, int | None]:
        """How many keys the newest refresh of each table computed; None: all."""
        tasks = sorted(self.tasks("refresh"), key=lambda task: task["id"])
        return {task["model"]: task["keys_affected"] for task in tasks}

    def invalidations(self) -> list[tuple[str, bool]]:
        """The cause of each, and whether it is closed."""
        with open_workspace(self.shell.folder, self.shell.environ) as workspace:
            answer = workspace.state.database.connection.execute(
                b"select cause, closed_at is not null from invalidation order by id"
            )
            return [(str(cause), bool(closed)) for cause, closed in answer.fetchall()]


def rows(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `status` says that is served."""
    return list(DeltaTable(model["location"], version=model["snapshot"]).to_pyarrow_table().to_pylist())


@pytest.fixture(scope="module")
def story_of(tmp_path_factory: pytest.TempPathFactory, typed_in: Callable[[Path], Any]) -> Callable[[str], Story]:
    def copied(name: str) -> Story:
        folder = tmp_path_factory.mktemp("stories") / name
        ignored = shutil.ignore_patterns("landing", "warehouse", ".penstock", "__pycache__")
        shutil.copytree(ROOT / "examples" / name, folder, ignore=ignored)
        return Story(typed_in(folder), sections(folder / "README.md"))

    return copied


@pytest.mark.timeout(600)
def test_a_reorg_is_repaired_once_and_only_where_it_was(story_of: Callable[[str], Story]) -> None:
    story = story_of("reorg")
    story.tell("Build")
    before = story.models()
    story.tell("The fork")
    after, repairs = story.models(), story.tasks("repair")

    # reported, seen in the log and reported again: one repair of each consumer
    assert sorted(task["model"] for task in repairs) == sorted(REPAIRED)
    scopes = {task["model"]: task["scope"]["ranges"] for task in repairs}
    assert scopes.pop("chain.volume") == [[990, 1010]]
    assert set(map(str, scopes.values())) == {str([list(FORK)])}

    # nobody read more than the files that the fork is in, and the lookup
    met = len(range(900, 1011))
    assert all(0 < task["rows_read"] <= met + 3 for task in repairs), [task["rows_read"] for task in repairs]

    # cursors stay where they were, and what is final was not touched
    assert {name: one["cursor"] for name, one in after.items()} == {name: one["cursor"] for name, one in before.items()}
    assert after["chain.compacted"]["snapshot"] == before["chain.compacted"]["snapshot"]
    assert all(closed for _, closed in story.invalidations())
    story.tell("What is there now")

    # one policy has the alert of the block that is gone, too
    kept, standing = rows(after["chain.alerts"]), rows(after["chain.alerts_standing"])
    assert {row["block_number"] for row in kept if row not in standing} == {998}
    hashes = {row["block_number"]: row["block_hash"] for row in rows(after["chain.transfers_enriched"])}
    assert all(hashes[row["block_number"]] == row["block_hash"] for row in standing)


@pytest.mark.timeout(600)
def test_a_late_row_is_one_repair_of_its_hour_and_its_day(story_of: Callable[[str], Story]) -> None:
    story = story_of("late")
    story.tell("One late row")
    done = story.tasks("repair")
    repairs = {task["model"]: task for task in done}
    assert len(done) == len(repairs) == 2
    # sixty-one rows of that hour, and nothing of the other twenty-five
    assert repairs["shop.orders_hourly"]["rows_read"] == 61
    assert all(one["stale"] == [] for one in story.models().values())


@pytest.mark.timeout(600)
def test_a_shop_computes_the_keys_that_changed(story_of: Callable[[str], Story]) -> None:
    story = story_of("shop")
    story.tell("Build")
    story.tell("New orders")
    story.tell("An order moves")
    assert story.keys() == {
        "shop.customer_metrics": 2,
        "shop.order_details": 1,
        "shop.revenue_by_segment": 2,
        "shop.customer_favourites": 6,
    }
    story.tell("A customer is renamed")
    assert story.keys()["shop.order_details"] == 10
    story.tell("Most rows change")
    assert set(story.keys().values()) == {None}
    story.tell("Nothing changes")
    quick = [task for task in story.tasks("refresh") if task["strategy"] == "no_data"]
    assert sorted(task["model"] for task in quick) == ["shop.customer_metrics", "shop.order_details"]
    assert all(task["seconds"] < 1 and task["spark_jobs"] == 0 for task in quick)
