"""The order in which the test files begin."""

from __future__ import annotations

from pathlib import Path

from parts import LIMITS, LONGEST

TESTS = Path(__file__).parent.parent


def test_every_name_in_the_order_is_of_a_file_or_of_a_folder() -> None:
    files = [str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")]
    assert [name for name in LONGEST if not any(file.startswith(name) for file in files)] == []


def test_every_folder_has_a_place_in_the_order_and_a_limit() -> None:
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert folders == LIMITS.keys()
    assert {f"{folder}/" for folder in folders} <= set(LONGEST)
