"""What the type checker cannot see: lists, and tables of the documentation, that must have an entry for every name."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from penstock.cli.main import app
from penstock.planner.readiness.words import LANE_WORDS
from penstock.project import kept
from penstock.project.keys.keys import BY_NAME, CHECK_SHAPES, REQUIRED, TYPES, keys_of
from penstock.values.models import Model, ModelType
from penstock.values.records import Cause, GenerationState
from penstock.values.tasks import LANES, TaskState

_UNREAD = {"type", "external", "manage", "live", "columns"}
"""Keys that are checked where they stand, or that nothing of this release uses."""
_DOCS = Path(__file__).parents[2] / "docs"
_CHECK = re.compile(r"check\s*\(\s*(\w+)\s+in\s*\(([^)]*)\)")


def allowed(column: str) -> set[str]:
    """What the newest constraint on a column of that name lists, table by table together."""
    listed: set[str] = set()
    for migration in sorted(files("penstock.state.migrations").iterdir(), key=lambda file: file.name):
        if migration.name.endswith(".sql"):
            for name, values in _CHECK.findall(migration.read_text()):
                listed |= set(re.findall(r"'(\w+)'", values)) if name == column else set()
    return listed


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("cause", get_args(Cause)),
        ("lane", LANES),
        ("type", get_args(ModelType)),
        ("state", (*get_args(TaskState), *get_args(GenerationState))),
    ],
)
def test_the_database_takes_every_name_that_the_code_has(column: str, values: tuple[str, ...]) -> None:
    assert not set(values) - allowed(column), f"a migration must let the column {column} hold it"


def test_a_name_that_the_database_does_not_know_is_found_out() -> None:
    assert {"cleanup"} - allowed("lane")


def test_every_lane_has_words() -> None:
    assert LANE_WORDS.keys() == set(LANES), "planner/readiness/words.py LANE_WORDS"


def test_every_model_type_has_keys_and_can_be_kept() -> None:
    assert set(TYPES) == REQUIRED.keys() == set(get_args(ModelType)), "project/keys/keys.py TYPES and REQUIRED"
    assert set(kept.KINDS.values()) == set(get_args(Model)), "project/kept.py KINDS"


@pytest.mark.parametrize("key", sorted(BY_NAME.keys() - _UNREAD))
def test_every_key_of_a_model_is_read(key: str) -> None:
    """One that is declared and forgotten would be accepted and ignored."""
    project = files("penstock.project")
    texts = [(project / f"{name}.py").read_text() for name in ("build", "drafts", "link")]
    assert any(f'"{key}"' in text for text in texts), f"project/build.py does not read {key}"


def words_in_code(page: str) -> set[str]:
    """The words that stand in code in the text of a page; examples do not count."""
    text = re.sub(r"^```.*?^```$", "", (_DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", text))))


def test_every_key_of_what_can_be_built_and_every_check_is_documented() -> None:
    keys = {key.name for built in kept.KINDS for key in keys_of(built)}
    assert not (keys | CHECK_SHAPES.keys()) - words_in_code("projects.md"), "write about it in docs/projects.md"


def test_every_command_is_documented() -> None:
    page = (_DOCS / "operating.md").read_text(encoding="utf-8")
    commands = get_command(app).commands.keys()
    assert not commands - set(re.findall(r"^\| `penstock (\w+)", page, re.MULTILINE)), "add a row to docs/operating.md"
