"""The benchmarks of the control plane run, and what they count besides time is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "benchmarks"


def measured(name: str, folder: Path) -> list[dict[str, object]]:
    """The rows of a short run; how long anything took is nobody's business here."""
    target = folder / f"{name}.json"
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--quick", "--json", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return read(target)


def read(target: Path) -> list[dict[str, object]]:
    rows = json.loads(target.read_text())["rows"]
    assert isinstance(rows, list)
    return rows


def test_no_task_goes_through_the_queue_twice(tmp_path: Path) -> None:
    assert {row["queue"] for row in measured("claims", tmp_path)} == {"bare", "penstock"}
    [many] = read(tmp_path / "claims_doubled.json")
    assert many["done"] == many["queued"]
    assert (many["done twice"], many["attempts too many"], many["covers too many"]) == (0, 0, 0)


def test_every_parents_commit_is_followed_by_a_child(tmp_path: Path) -> None:
    rows = measured("wakeup", tmp_path)
    assert [(row["to"], row["times"]) for row in rows][2:] == [("child's task", 3), ("child starts", 3)]


def test_a_commit_and_a_late_row_reach_the_second_model(tmp_path: Path) -> None:
    rows = measured("freshness", tmp_path)
    assert [row["what"] for row in rows if row["part"] == "all"] == ["new rows", "a late row"]


def test_a_round_orders_exactly_what_follows_from_what_moved(tmp_path: Path) -> None:
    orders = {(row["coverage"], row["case"]): row["orders"] for row in measured("scheduler", tmp_path)}
    expected = {"cold start": 0, "nothing changed": 0, "sweep": 0, "one source moved": 5}
    children = {shape: 4 if shape == "240 models" else 1 for shape, _ in orders}
    assert len(children) == 4
    assert orders == {
        (shape, case): n
        for shape, own in children.items()
        for case, n in {**expected, "one model committed": own}.items()
    }


def test_an_idle_process_starts_no_spark(tmp_path: Path) -> None:
    assert [row["JVM"] for row in measured("idle_up", tmp_path)] == [False, False]


def test_late_rows_cost_their_hour_and_amended_ones_every_hour(tmp_path: Path) -> None:
    intervals = {row["case"]: row["intervals"] for row in measured("late", tmp_path)}
    assert intervals == {
        "full build": 4 * 20,
        "nothing changed": 0,
        "late in one old hour": 4,
        "amended in all hours": 4 * 20,
        "amended in all hours, change feed": 4 * 20,
    }


def test_a_rewritten_file_reopens_the_hours_that_changed_and_no_other(tmp_path: Path) -> None:
    cases = {row["case"]: row["intervals"] for row in measured("rewrites", tmp_path)}
    assert cases == {"full build": 4 * 40, "UPDATE by delta-rs": 4 * 2, "rewritten in another order": 4 * 2}
