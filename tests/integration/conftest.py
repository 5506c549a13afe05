"""One embedded PostgreSQL for the whole session; a schema of its own for every test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.state.embedded.server import EmbeddedPostgres
from penstock.state.store import State

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    project: Path = tmp_path_factory.mktemp("postgres")
    with EmbeddedPostgres.attach(project, os.environ) as server:
        yield server.dsn


@pytest.fixture
def schema(dsn: str) -> Iterator[str]:
    name = f"Test {os.getpid()}.{next(_NUMBERS)}"
    yield name
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("drop schema if exists {} cascade").format(psycopg.sql.Identifier(name)))


@pytest.fixture
def connect(dsn: str, schema: str) -> Iterator[Callable[[], State]]:
    """Opens further connections to the test's schema, and closes them at the end."""
    opened: list[State] = []

    def open_state() -> State:
        opened.append(State.open(dsn, schema, migrate=True))
        return opened[-1]

    yield open_state
    for state in opened:
        state.close()


@pytest.fixture
def state(connect: Callable[[], State]) -> State:
    return connect()
