"""Runs the tests in two halves side by side: either alone leaves a core idle much of the time."""

from __future__ import annotations

import subprocess
import sys
from tempfile import TemporaryFile

DEMO = "tests/acceptance/test_demo.py"
SPARK = ("tests/spark", "tests/acceptance", f"--ignore={DEMO}")
OTHERS = ("tests/integration", "tests/crash", DEMO)


def pytest(half: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "--durations=10", *half]


def main() -> int:
    """0 when both halves pass; the output of the second comes after that of the first."""
    with TemporaryFile() as kept, subprocess.Popen(pytest(OTHERS), stdout=kept, stderr=kept) as beside:
        codes = [subprocess.run(pytest(SPARK), check=False).returncode, beside.wait()]
        kept.seek(0)
        sys.stdout.write(kept.read().decode(errors="replace"))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
