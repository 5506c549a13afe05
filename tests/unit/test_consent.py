"""Consent: asked of people only, and never where the answer of a command goes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.consent import require_consent
from penstock.errors import UsageError

_ASK = """
from penstock.cli.consent import require_consent
from penstock.errors import UsageError
try:
    require_consent(["a table goes"], False)
    print("{}")
except UsageError as error:
    print(error.message)
"""


def asked(answer: bytes) -> subprocess.CompletedProcess[str]:
    """What a process with a terminal says when somebody types `answer`."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        return subprocess.run([sys.executable, "-c", _ASK], stdin=theirs, capture_output=True, text=True, check=True)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_person_is_asked_beside_the_answer_not_in_it() -> None:
    said = asked(b"y\n")
    assert said.stdout == "{}\n"
    assert "a table goes" in said.stderr and "Go on?" in said.stderr


def test_an_answer_of_no_changes_nothing() -> None:
    assert asked(b"n\n").stdout == "cancelled; nothing was changed\n"


def test_without_a_terminal_the_error_says_what_would_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        with pytest.raises(UsageError, match="a table goes") as caught:
            require_consent(["a table goes"], False)
        require_consent(["a table goes"], True)
        require_consent([], False)
    assert caught.value.hint == "repeat it with --yes"
