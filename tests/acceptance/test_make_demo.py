"""The walk that `make demo` shows: it runs to its end and tells what to try next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "demo.py"


def test_the_demo_ends_with_0_differences_and_the_next_steps(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 differences" in done.stdout
    assert "nothing to do; Spark was not started" in done.stdout
    last = done.stdout.strip().splitlines()[-6:]
    assert last[0].startswith("The demo is in")
    assert last[-1].endswith("penstock plan")
