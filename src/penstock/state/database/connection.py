"""How is one connection to PostgreSQL opened and spoken to?"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import kwargs_row, scalar_row

from penstock.errors import BusyError, StateError
from penstock.state.database import ranges
from penstock.state.database.statements import statement

T = TypeVar("T")

SETTINGS = {
    "application_name": "penstock",
    "timezone": "UTC",
    "datestyle": "ISO",
    # a worker that stops inside its completion must not block recovery for ever
    "idle_in_transaction_session_timeout": "60s",
    "statement_timeout": "120s",
    "lock_timeout": "30s",
    # nor one whose machine or cable is gone: without these the server would wait two hours for it
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_PATIENCE: dict[str, str | int | None] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""How long a silent server is waited for, where the connection string does not say."""
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_GONE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)


class Database:
    """One connection that speaks in named statements. Not for several threads at once.

    When the connection is lost, the statement that notices fails; the next one opens a new connection, unless it is
    part of a transaction that went with the old one.
    """

    def __init__(
        self, dsn: str, schema: str, connection: psycopg.Connection, before: Callable[[], None] | None = None
    ) -> None:
        self.schema, self.connection = schema, connection
        self._dsn, self._before = dsn, before
        self._open_blocks = 0
        self._closed = False

    @classmethod
    def connect(cls, dsn: str, schema: str, before: Callable[[], None] | None = None) -> Database:
        """`before` is called whenever a lost connection is about to be replaced."""
        return cls(dsn, schema, _connection(dsn, schema), before)

    def ready(self) -> psycopg.Connection:
        """The connection, a new one when the last one was lost: whatever belonged to that session is gone."""
        if self.connection.closed and not self._open_blocks and not self._closed:
            if self._before is not None:
                self._before()
            self.connection = _connection(self._dsn, self.schema)
        return self.connection

    def wait_for_word(self, wake: socket.socket, seconds: float) -> None:
        """Until the server says something unasked, as it does when the connection ends, or `wake` can be read."""
        with speaking(), selectors.DefaultSelector() as ears:
            ears.register(self.connection.fileno(), selectors.EVENT_READ)
            ears.register(wake, selectors.EVENT_READ)
            ears.select(seconds)

    def close(self) -> None:
        """For good."""
        self._closed = True
        with suppress(psycopg.Error):
            self.connection.close()

    def rows(self, name: str, make: Callable[..., T], /, **values: object) -> list[T]:
        """What `make` builds of every row; the columns are its keyword arguments."""
        with speaking(), self.ready().cursor(row_factory=kwargs_row(make)) as cursor:
            return cursor.execute(statement(name), values).fetchall()

    def row(self, name: str, make: Callable[..., T], /, **values: object) -> T | None:
        rows = self.rows(name, make, **values)
        return rows[0] if rows else None

    def values(self, name: str, kind: type[T], /, **values: object) -> list[T]:
        """The only column."""
        with speaking(), self.ready().cursor(row_factory=scalar_row) as cursor:
            return [value for value in cursor.execute(statement(name), values) if isinstance(value, kind)]

    def value(self, name: str, kind: type[T], /, **values: object) -> T | None:
        column = self.values(name, kind, **values)
        return column[0] if column else None

    def run(self, name: str, /, **values: object) -> int:
        """Execute, and say how many rows it touched."""
        with speaking():
            return self.ready().execute(statement(name), values).rowcount

    def run_many(self, name: str, values: Sequence[dict[str, object]]) -> int:
        if not values:
            return 0
        with speaking(), self.ready().cursor() as cursor:
            cursor.executemany(statement(name), values)
            return cursor.rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with speaking(), self._block() as connection, connection.transaction():
            yield
            if connection.closed:  # the driver would end it without a word, as if it had committed
                raise psycopg.OperationalError("the connection was lost before the transaction was committed")

    @contextmanager
    def looking(self) -> Iterator[None]:
        """A read-only transaction in which all statements see the same moment."""
        with speaking(), self._block() as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            try:
                with connection.transaction():
                    yield
            finally:
                if not connection.closed:
                    connection.isolation_level = None
                    connection.read_only = None

    @contextmanager
    def _block(self) -> Iterator[psycopg.Connection]:
        """All that is said inside belongs to one connection: a second one would know nothing of the first half."""
        connection = self.ready()
        self._open_blocks += 1
        try:
            yield connection
        finally:
            self._open_blocks -= 1


def _connection(dsn: str, schema: str) -> psycopg.Connection:
    try:
        connection = psycopg.connect(make_conninfo("", **(_PATIENCE | conninfo_to_dict(dsn))), autocommit=True)
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
    try:
        _set_up(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: psycopg.Connection, schema: str) -> None:
    settings = SETTINGS | {"search_path": sql.Identifier(schema).as_string(connection)}
    with speaking():
        if connection.info.server_version < 140000:
            raise StateError(
                f"PostgreSQL {connection.info.server_version // 10000} is too old for the state database",
                hint="use PostgreSQL 14 or newer",
            )
        connection.execute(
            "select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as s (name, value)",
            (list(settings), list(settings.values())),
        )


def storable(text: str) -> str:
    """The same as PostgreSQL can keep it: the words of a failure may quote a row that has a zero byte."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


@contextmanager
def speaking() -> Iterator[None]:
    """Turn what the driver says into what a caller can act on; a wrong statement is a bug and stays as it is."""
    try:
        yield
    except _BUSY as error:
        raise BusyError(f"the state database is busy: {str(error).strip()}") from error
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as error:
        raise StateError(
            f"the state database refuses: {str(error).strip()}",
            hint="use the role that owns the schema; a reader may ask, not act",
        ) from error
    except _GONE as error:
        raise StateError(
            f"the state database does not answer: {str(error).strip()}",
            hint="is PostgreSQL up? What was not committed is found again by the next run",
        ) from error
