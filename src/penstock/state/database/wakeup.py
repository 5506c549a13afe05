"""Has the database changed since the last look?"""

from __future__ import annotations

import psycopg
from psycopg import sql

from penstock.state.database.connection import Database, speaking


class Listener:
    """Waits for a notification; lossy by nature, so the caller looks for itself afterwards."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listening: psycopg.Connection | None = None

    def wait(self, timeout: float) -> tuple[str, ...]:
        """The notifications since then: '' something changed, 'cancel' a task was taken away; () there was none.

        The first call returns at once: what came before it was not heard. So does the first one on a new connection,
        with '', since something may have changed meanwhile.
        """
        with speaking():
            connection = self._database.ready()
            if connection is self._listening:
                return tuple(
                    notification.payload for notification in connection.notifies(timeout=timeout, stop_after=1)
                )
            channel = self._database.value("channel", str)
            connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel or "")))
            first, self._listening = self._listening is None, connection
            return () if first else ("",)


def wake_cancelled(database: Database) -> None:
    """End the waits of all, and let workers ask at once which of their tasks are still theirs."""
    database.run("wake_cancel")
