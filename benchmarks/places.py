"""Where does a measurement keep its project and its database?"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.embedded.server import EmbeddedPostgres


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of which nothing is left; for root, one that the account of the database can reach, too."""
    root = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    root.chmod(0o755)
    os.environ["PENSTOCK_PG_HOME"] = str(root / "databases")
    os.environ["PENSTOCK_PG_LINGER"] = "0"
    try:
        yield root
    finally:
        del os.environ["PENSTOCK_PG_HOME"], os.environ["PENSTOCK_PG_LINGER"]
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[tuple[Path, str]]:
    """A folder, and the address of an embedded PostgreSQL as users have it: it waits for its disk."""
    with scratch() as root, EmbeddedPostgres.attach(root, os.environ) as server:
        yield root, server.dsn
