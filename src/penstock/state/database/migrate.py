"""Which tables does this code need, and does the database have them?"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from psycopg import sql

from penstock.errors import StateError
from penstock.state.database.connection import Database, speaking


@dataclass(frozen=True, slots=True, order=True)
class Migration:
    name: str
    text: str

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    name: str
    hash: str


def migrations(folder: Traversable | None = None) -> tuple[Migration, ...]:
    folder = folder or files("penstock.state").joinpath("migrations")
    sql_files = (file for file in folder.iterdir() if file.name.endswith(".sql"))
    return tuple(
        sorted(Migration(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in sql_files)
    )


def pending(known: Sequence[Migration], applied: Sequence[Applied]) -> tuple[Migration, ...]:
    """What is still to be applied; a database that has something else is refused."""
    for ours, theirs in zip(known, applied, strict=False):
        if ours.name != theirs.name:
            raise StateError(
                f"the state database has the migration {theirs.name!r} where this penstock has {ours.name!r}",
                hint="use the release of penstock that made it",
            )
        if ours.hash != theirs.hash:
            raise StateError(
                f"the migration {ours.name!r} is not the one that was applied to the state database",
                hint="applied migrations never change: restore the file and add a new one",
            )
    if len(applied) > len(known):
        raise StateError(
            f"the state database is newer than this penstock: it has the migration {applied[-1].name!r}",
            hint="upgrade penstock",
        )
    return tuple(known[len(applied) :])


def check(database: Database) -> None:
    """That nothing is pending."""
    if waiting := pending(migrations(), _applied(database)):
        raise StateError(
            f"the state database lacks {', '.join(migration.name for migration in waiting)}",
            hint="run `penstock migrate`",
        )


def migrate(database: Database, known: Sequence[Migration] | None = None) -> tuple[str, ...]:
    """Apply what is pending, all or nothing, one process at a time."""
    known = migrations() if known is None else known
    if (applied := _applied(database)) and not pending(known, applied):
        return ()
    with database.transaction():
        database.run("patient_statements")
        database.run("lock_migrations", schema=database.schema)
        _prepare(database)
        waiting = pending(known, _applied(database))
        for migration in waiting:
            with speaking():
                database.connection.execute(migration.text.encode(), prepare=False)
            database.run("record_migration", name=migration.name, hash=migration.hash)
    return tuple(migration.name for migration in waiting)


def _prepare(database: Database) -> None:
    # a role that may not create schemas can still use one that somebody made for it
    if not database.value("has_schema", bool, schema=database.schema):
        with speaking():
            database.connection.execute(sql.SQL("create schema {}").format(sql.Identifier(database.schema)))
    database.run("create_migration_table")


def _applied(database: Database) -> list[Applied]:
    if not database.value("has_migration_table", bool):
        return []
    return database.rows("applied_migrations", Applied)
