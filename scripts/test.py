"""Runs the tests that need a JVM and the others side by side: either half alone leaves a core idle much of the time."""

from __future__ import annotations

import subprocess
import sys
from tempfile import TemporaryFile

WITHOUT_JVM = ("tests/integration", "tests/crash")
WITH_JVM = ("tests/spark", "tests/acceptance")


def pytest(*folders: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "--durations=10", *folders]


def main() -> int:
    """0 when both halves pass; the output of the second comes after that of the first."""
    with TemporaryFile() as kept, subprocess.Popen(pytest(*WITHOUT_JVM), stdout=kept, stderr=kept) as beside:
        codes = [subprocess.run(pytest(*WITH_JVM), check=False).returncode, beside.wait()]
        kept.seek(0)
        sys.stdout.write(kept.read().decode(errors="replace"))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
