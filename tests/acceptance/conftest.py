"""The command line as a person uses it: real processes, real PostgreSQL, real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Answer:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """Types penstock commands in one project."""

    folder: Path
    environ: Mapping[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", *arguments],
            cwd=self.folder,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, code: int | None = 0) -> Answer:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=240)
        if code is not None:
            assert process.returncode == code, f"{arguments} -> {process.returncode}\n{out}\n{err}"
        return Answer(process.returncode, out, err)

    def python(self, *arguments: str) -> str:
        """What a program of the project printed."""
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> dict[str, object]:
        answer = self(*arguments, "--json", code=code).json
        assert isinstance(answer, dict)
        return answer


@pytest.fixture(scope="session")
def shell_in() -> Callable[[Path], Shell]:
    """A database stays for the next command, as it does for people, but not for minutes."""
    return lambda folder: Shell(folder, {**os.environ, "PENSTOCK_PG_LINGER": "20"})
