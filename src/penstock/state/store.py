"""What can the runtime ask of the state database?"""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.database.connection import Database
from penstock.state.database.migrate import check as check_migrations
from penstock.state.database.migrate import migrate as apply_migrations
from penstock.state.database.wakeup import Listener
from penstock.state.history import History
from penstock.state.progress.attempts import Attempts
from penstock.state.progress.events import Events
from penstock.state.progress.generations import Generations
from penstock.state.progress.invalidations import Invalidations
from penstock.state.progress.reopenings import Reopenings
from penstock.state.projects import Projects
from penstock.state.queue.control import Control
from penstock.state.queue.queue import Queue
from penstock.state.queue.workers import Workers
from penstock.state.sources import Sources
from penstock.state.views import Views


class State:
    """One connection to the state of one deployment, and the parts that speak over it; every thread needs its own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.views = Views(database)
        self.projects = Projects(database)
        self.sources = Sources(database)
        self.queue = Queue(database)
        self.workers = Workers(database)
        self.control = Control(database)
        self.attempts = Attempts(database)
        self.generations = Generations(database)
        self.invalidations = Invalidations(database)
        self.events = Events(database)
        self.reopenings = Reopenings(database)
        self.history = History(database)
        self.listener = Listener(database)

    @classmethod
    def open(cls, dsn: str, schema: str, *, migrate: bool, before: Callable[[], None] | None = None) -> State:
        """`before` is called whenever a lost connection is about to be replaced."""
        database = Database.connect(dsn, schema, before)
        try:
            if migrate:
                apply_migrations(database)
            else:
                check_migrations(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @staticmethod
    def server_version(dsn: str) -> str:
        """Which PostgreSQL answers there."""
        database = Database.connect(dsn, "public")
        number = database.connection.info.server_version
        database.close()
        return f"{number // 10000}.{number % 10000}"

    @classmethod
    def migrated(cls, dsn: str, schema: str) -> tuple[str, ...]:
        """Bring a database up to date, wherever it stands; the names of what was applied."""
        database = Database.connect(dsn, schema)
        try:
            return apply_migrations(database)
        finally:
            database.close()

    def close(self) -> None:
        self.database.close()
