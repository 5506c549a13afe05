"""What can the runtime ask of the state database?"""

from __future__ import annotations

from collections.abc import Callable

from penstock.state import pruning
from penstock.state.apply import Projects
from penstock.state.database import migrate, roles, wakeup
from penstock.state.database.connection import Database
from penstock.state.history import History
from penstock.state.progress.events import Events
from penstock.state.progress.generations import Generations
from penstock.state.progress.invalidation import Invalidations
from penstock.state.progress.publication import Attempts
from penstock.state.progress.reopenings import Reopenings
from penstock.state.queue.control import Control
from penstock.state.queue.queue import Queue
from penstock.state.queue.workers import Workers
from penstock.state.sources import Sources
from penstock.state.world import Views


class State:
    """One connection to the state of one deployment; every thread needs its own."""

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
        self._listener = wakeup.Listener(database)

    @classmethod
    def open(cls, dsn: str, schema: str, *, migrate: bool, before: Callable[[], None] | None = None) -> State:
        """`before` is called whenever a lost connection is about to be replaced."""
        state = cls(Database.connect(dsn, schema, before))
        try:
            if migrate:
                state.migrate()
            else:
                state.check()
        except BaseException:
            state.close()
            raise
        return state

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
        state = cls(Database.connect(dsn, schema))
        try:
            return state.migrate()
        finally:
            state.close()

    def close(self) -> None:
        self.database.close()

    def migrate(self) -> tuple[str, ...]:
        """The names of the migrations that were applied."""
        return migrate.migrate(self.database)

    def check(self) -> None:
        """That the tables are those this code needs."""
        migrate.check(self.database)

    def grant_reader(self, role: str) -> None:
        """Let another role of the server ask everything and change nothing."""
        roles.grant_reader(self.database, role)

    def prune(self, retention_seconds: float) -> int:
        """Remove what ended longer ago than that and says nothing about what is there now; how many tasks."""
        return pruning.prune(self.database, retention_seconds)

    def wait_change(self, timeout: float) -> tuple[str, ...]:
        """What was told meanwhile: '' something changed, 'cancel' somebody took a task away; () nobody said a word."""
        return self._listener.wait(timeout)
