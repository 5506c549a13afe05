"""The command line as a person uses it: real processes, real PostgreSQL, real Spark."""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.engine.spark import session as spark_session
from penstock.engine.spark.session import Session


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


@dataclass(frozen=True)
class Typed(Shell):
    """The same commands, each in this process: whoever asks for Spark is given the session of the tests.

    Its settings are those of the tests, so it is not for projects that have a `spark:` of their own.
    """

    session: Session

    def __call__(self, *arguments: str, code: int | None = 0) -> Answer:
        from penstock.cli.main import main

        out, err, ended = io.StringIO(), io.StringIO(), 0
        with self._alone(), chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            sys.argv = ["penstock", *arguments]
            try:
                main()
            except SystemExit as end:
                ended = end.code if isinstance(end.code, int) else int(end.code is not None)
        answer = Answer(ended, out.getvalue(), err.getvalue())
        if code is not None:
            assert answer.code == code, f"{arguments} -> {answer}"
        return answer

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """What a command changes for its whole process is put back."""
        shared = self.session

        class Lent(Session):
            """Not started before a command needs it, and not stopped after it."""

            def _start(self) -> object:
                return shared.spark()

            def stop(self, *, quick: bool = False) -> None:
                if self._beginning is not None:
                    self._beginning.join()
                self._spark = None

        threshold, argv, handlers = gc.get_threshold(), sys.argv, logging.getLogger("penstock").handlers[:]
        with patch.dict(os.environ, self.environ), patch.object(spark_session, "Session", Lent):
            try:
                yield
            finally:
                gc.set_threshold(*threshold)
                sys.argv = argv
                logging.getLogger("penstock").handlers[:] = handlers


@pytest.fixture(scope="session")
def typed_in(session: Session, shell_in: Callable[[Path], Shell]) -> Callable[[Path], Shell]:
    """For what commands print and do; what a process of its own adds is shown by test_demo and test_together."""
    return lambda folder: Typed(folder, shell_in(folder).environ, session)
