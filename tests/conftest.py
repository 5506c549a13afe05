"""What every test may count on: databases of test projects leave nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# a busy machine is no finding: what may take long is measured by tests of its own; `make fuzz` draws many more
settings.register_profile("patient", deadline=None, max_examples=40)
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def database_home() -> Iterator[Path]:
    """Run as root, embedded databases cannot live below pytest's private folders; they get one of their own."""
    home = Path(tempfile.mkdtemp(prefix="penstock-tests-"))
    home.chmod(0o755)
    os.environ["PENSTOCK_PG_HOME"] = str(home)
    os.environ["PENSTOCK_PG_LINGER"] = "0"  # no server outlives the command that it was started for
    yield home
    del os.environ["PENSTOCK_PG_HOME"], os.environ["PENSTOCK_PG_LINGER"]
    shutil.rmtree(home, ignore_errors=True)
