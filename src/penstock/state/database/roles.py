"""Who may ask, and who may change something?"""

from __future__ import annotations

from penstock.errors import StateError
from penstock.state.database.connection import Database, speaking


def grant_reader(database: Database, role: str) -> None:
    """Let `role` read every table of the schema, also those that later migrations of this owner make; nothing else."""
    if not database.value("has_role", bool, role=role):
        raise StateError(
            f"the server of the state database has no role named {role!r}",
            hint="make it first, as an administrator: create role … login",
        )
    with database.transaction():
        # identifiers cannot be arguments: the server itself quotes them
        for grant in database.values("reader_grants", str, schema=database.schema, role=role):
            with speaking():
                database.connection.execute(grant.encode(), prepare=False)
        if hidden := database.values("hidden_tables", str, schema=database.schema, role=role):
            raise StateError(
                f"the role {role!r} could not be given the right to read {', '.join(hidden)}",
                hint="use the role that owns the schema",
            )
