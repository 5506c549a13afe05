"""Has anybody changed something?"""

from __future__ import annotations

from psycopg import sql

from penstock.state.connection import Database, speaking


class Listener:
    """Waits for a notification; lossy by nature, so the caller looks for itself afterwards."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listening = False

    def wait(self, timeout: float) -> None:
        """At most `timeout` seconds. The first call returns at once: what came before it was not heard."""
        connection = self._database.connection
        with speaking():
            if not self._listening:
                channel = self._database.value("channel", str)
                connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel or "")))
                self._listening = True
                return
            for _ in connection.notifies(timeout=timeout, stop_after=1):
                return
