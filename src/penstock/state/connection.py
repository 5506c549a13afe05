"""How is one connection to PostgreSQL opened and spoken to?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import kwargs_row, scalar_row

from penstock.errors import ConflictError, StateError
from penstock.state import ranges
from penstock.state.statements import statement

T = TypeVar("T")

SETTINGS = {
    "application_name": "penstock",
    "timezone": "UTC",
    "datestyle": "ISO",
    # a worker that stops inside its completion must not block recovery for ever
    "idle_in_transaction_session_timeout": "60s",
    "statement_timeout": "120s",
    "lock_timeout": "30s",
}
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_GONE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)


class Database:
    """One connection that speaks in named statements. Not for several threads at once."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection, self.schema = connection, schema

    @classmethod
    def connect(cls, dsn: str, schema: str) -> Database:
        try:
            connection = psycopg.connect(dsn, autocommit=True, connect_timeout=10)
        except psycopg.ProgrammingError:
            # the driver's words may hold the password
            raise StateError(
                "the connection string of the state database cannot be read",
                hint="write `state:` as postgresql://user@host:port/database",
            ) from None
        except psycopg.OperationalError as error:
            raise StateError(
                f"cannot reach the state database: {str(error).strip()}",
                hint="check `state:` of the target, and that PostgreSQL is up",
            ) from error
        ranges.register(connection)
        database = cls(connection, schema)
        try:
            database._set_up()
        except BaseException:
            connection.close()
            raise
        return database

    def _set_up(self) -> None:
        settings = SETTINGS | {"search_path": sql.Identifier(self.schema).as_string(self.connection)}
        with speaking():
            if self.connection.info.server_version < 140000:
                raise StateError(
                    f"PostgreSQL {self.connection.info.server_version // 10000} is too old for the state database",
                    hint="use PostgreSQL 14 or newer",
                )
            self.connection.execute(
                "select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as s (name, value)",
                (list(settings), list(settings.values())),
            )

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.connection.close()

    def rows(self, name: str, make: Callable[..., T], /, **values: object) -> list[T]:
        """What `make` builds of every row; the columns are its keyword arguments."""
        with speaking(), self.connection.cursor(row_factory=kwargs_row(make)) as cursor:
            return cursor.execute(statement(name), values).fetchall()

    def one(self, name: str, make: Callable[..., T], /, **values: object) -> T | None:
        found = self.rows(name, make, **values)
        return found[0] if found else None

    def values(self, name: str, kind: type[T], /, **values: object) -> list[T]:
        """The only column."""
        with speaking(), self.connection.cursor(row_factory=scalar_row) as cursor:
            return [value for value in cursor.execute(statement(name), values) if isinstance(value, kind)]

    def value(self, name: str, kind: type[T], /, **values: object) -> T | None:
        found = self.values(name, kind, **values)
        return found[0] if found else None

    def run(self, name: str, /, **values: object) -> int:
        """Execute, and say how many rows it touched."""
        with speaking():
            return self.connection.execute(statement(name), values).rowcount

    def run_many(self, name: str, values: Sequence[dict[str, object]]) -> int:
        if not values:
            return 0
        with speaking(), self.connection.cursor() as cursor:
            cursor.executemany(statement(name), values)
            return cursor.rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with speaking(), self.connection.transaction():
            yield

    @contextmanager
    def looking(self) -> Iterator[None]:
        """A read-only transaction in which all statements see the same moment."""
        with speaking():
            self.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self.connection.read_only = True
            try:
                with self.connection.transaction():
                    yield
            finally:
                if not self.connection.closed:
                    self.connection.isolation_level = None
                    self.connection.read_only = None


@contextmanager
def speaking() -> Iterator[None]:
    """Turn what the driver says into what a caller can act on; a wrong statement is a bug and stays as it is."""
    try:
        yield
    except _BUSY as error:
        raise ConflictError(f"the state database is busy: {str(error).strip()}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StateError(
            f"the state database refuses: {str(error).strip()}", hint="let the role own a schema of its own"
        ) from error
    except _GONE as error:
        raise StateError(
            f"the state database does not answer: {str(error).strip()}",
            hint="is PostgreSQL up? What was not committed is found again by the next run",
        ) from error
