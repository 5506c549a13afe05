"""What the architecture page names is there, and a layer that is broken is found out."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([a-z_/]+\.py)`(?: `([A-Za-z_.]+)`)?")
MOST_MODULES = 16


def defined(file: Path) -> set[str]:
    """Functions, classes, constants and methods, as `name` and `Class.name`."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_every_module_and_function_that_the_page_names_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 20
    for path, name in named:
        assert (SOURCE / path).is_file(), path
        assert not name or name in defined(SOURCE / path), f"{path}: {name}"


def test_every_room_is_on_the_page() -> None:
    for package in ("runtime", "engine", "state", "planner", "project"):
        [line] = [line for line in PAGE.splitlines() if line.startswith(f"| `{package}` |")]
        rooms = {folder.name for folder in (SOURCE / package).iterdir() if (folder / "__init__.py").exists()}
        assert rooms <= set(re.findall(r"`([a-z_]+)`", line)), package


def test_no_room_is_crowded() -> None:
    for init in SOURCE.rglob("__init__.py"):
        assert len(list(init.parent.glob("*.py"))) <= MOST_MODULES, init.parent


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("planner/readiness/grid.py", "from penstock.state.store import State"),
        ("engine/log/newer_commits.py", "from penstock.engine.commit.publish import publish"),
        ("runtime/place/workspace.py", "from penstock.runtime.serve.run import run"),
        ("answers/status.py", "import pyspark"),
    ],
)
def test_control_an_import_that_points_up_is_found_out(tmp_path: Path, module: str, planted: str) -> None:
    shutil.copytree(SOURCE, tmp_path / "penstock", ignore=shutil.ignore_patterns("__pycache__", "assets", "sql"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    file = tmp_path / "penstock" / module
    file.write_text(f"{file.read_text(encoding='utf-8')}\n{planted}\n", encoding="utf-8")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
