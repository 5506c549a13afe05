"""What every test may count on: databases of test projects leave nothing behind. And what the tests cost."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from parts import longest_first, table

if TYPE_CHECKING:
    from penstock.engine.spark.session import Session

# a busy machine is no finding: what may take long is measured by tests of its own; `make fuzz` draws many more
settings.register_profile("patient", deadline=None, max_examples=40)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report for kind in terminalreporter.stats.values() for report in kind if isinstance(report, pytest.TestReport)
    ]
    if len({report.nodeid.split("/")[1] for report in reports}) > 1:
        terminalreporter.section("what each part costs")
        terminalreporter.write("".join(f"{line}\n" for line in table(reports)))


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


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """One for all files of a process: those of tests/spark, and those in which commands are typed in the process."""
    from penstock.engine.spark.session import Session, SparkSettings
    from penstock.runtime.place.workspace import cache_folder

    conf = {
        "spark.hadoop.javax.jdo.option.ConnectionPassword": "conf-Zk93-hush",
        "spark.driver.extraJavaOptions": '-Dtrust.password="option Zk93 \\"hush\\"" -Dplain=1',
    }
    storage = {"AWS_SECRET_ACCESS_KEY": "storage-Zk93-hush", "AWS_REGION": "eu-north-1"}
    environ = {**os.environ, "SOME_DATABASE_PASSWORD": "environ-Zk93-hush"}
    started = Session(
        SparkSettings(cache=cache_folder(os.environ), environ=environ, conf=conf, storage=storage, quick=True)
    )
    yield started
    started.stop()
