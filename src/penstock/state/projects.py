"""How does a revision become what the database wants, and when does a rebuilt table take over?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from psycopg.types.json import Jsonb

from penstock.errors import StateError
from penstock.planner.policy.revision import Move, StoredGeneration, StoredModel, lineages, moves
from penstock.state.database.connection import Database
from penstock.state.queue.control import Control
from penstock.state.queue.schedules import write_schedules
from penstock.state.queue.tasks import lock_active
from penstock.values.records import Change, Definition


@dataclass(frozen=True, slots=True)
class Projects:
    _database: Database

    def changes(self, definitions: Sequence[Definition]) -> tuple[Change, ...]:
        """What `apply` would change."""
        with self._database.looking():
            return tuple(move.change for move in _moves(self._database, definitions))

    def apply(
        self, revision: str, bundle: bytes, manifest: Mapping[str, object], definitions: Sequence[Definition]
    ) -> tuple[Change, ...]:
        """Make `revision` the active one. A new one may have put right what failed, so nothing is held any more."""
        database, names = self._database, [definition.name for definition in definitions]
        with database.transaction():
            database.run("lock_apply")
            todo = _moves(database, definitions)
            settled = all(move.change.change == "unchanged" and not move.retire for move in todo)
            if settled and self.active_revision() == revision:
                write_schedules(database, definitions)
                return tuple(move.change for move in todo)
            database.run("lock_generations", models=[move.change.model for move in todo])
            database.run("supersede_revisions", hash=revision)
            database.run("insert_revision", hash=revision, bundle=bundle, manifest=Jsonb(dict(manifest)))
            _store_models(database, definitions)
            for move in todo:
                _take(database, move, {definition.name: definition for definition in definitions}, revision)
            database.run("close_invalidations", invalidations=None)
            write_schedules(database, definitions)
            Control(database).go_on_all(names)
            database.run("clear_holds", models=names)
            database.run("audit", actor="apply", action="apply", subject=revision, detail=Jsonb({}))
            database.run("wake")
        return tuple(move.change for move in todo)

    def active_revision(self) -> str | None:
        return self._database.value("active_revision", str)

    def bundle(self, revision: str) -> bytes:
        stored = self._database.value("bundle", bytes, hash=revision)
        if stored is None:
            raise StateError(f"the state database has no revision {revision!r}", hint="run `penstock apply`")
        return stored

    def cutover(self, models: Collection[str], generations: Collection[int] | None = None) -> tuple[str, ...]:
        """Let the building generations of exactly these models serve, all of them in one transaction or none.

        `generations` are those that were found complete: another revision may have begun other ones since. None takes
        whatever is being built.
        """
        names = sorted(models)
        with self._database.transaction():
            self._database.run("lock_apply")
            self._database.run("lock_generations", models=names)
            complete = None if generations is None else list(generations)
            building = self._database.values("building_models", str, models=names, generations=complete)
            if not names or sorted(building) != names:
                return ()
            retired = self._database.values("retire_current", int, models=names)
            _drop_tasks(self._database, retired, "superseded", "a rebuilt table took over")
            self._database.run("promote_building", models=names)
            self._database.run("close_invalidations", invalidations=None)
            self._database.run("audit", actor="run", action="cutover", subject=", ".join(names), detail=Jsonb({}))
            self._database.run("wake")
        return tuple(names)


def _moves(database: Database, definitions: Sequence[Definition]) -> tuple[Move, ...]:
    models = database.rows("stored_models", StoredModel)
    return moves(definitions, models, database.rows("stored_generations", StoredGeneration))


def _store_models(database: Database, definitions: Sequence[Definition]) -> None:
    hashes = lineages(definitions)
    rows: list[dict[str, object]] = [
        {
            "id": definition.name,
            "type": definition.type,
            "lineage": hashes[definition.name],
            "axis": definition.axis,
            "position": definition.position,
            "config": Jsonb(dict(definition.config)),
            "max_inflight": definition.max_inflight,
            "retries": definition.retries,
        }
        for definition in definitions
    ]
    database.run(
        "forget_changed_sources", models=[row["id"] for row in rows], lineages=[row["lineage"] for row in rows]
    )
    database.run_many("upsert_model", rows)
    # the edges of removed models stay: changes of their parents still mark the tables that they keep
    database.run("delete_edges", models=[definition.name for definition in definitions])
    columns = ("child", "parent", "group_no", "ordinal", "before_pos", "after_pos", "optional")
    edges = [
        dict(zip(columns, (definition.name, *edge), strict=True))
        for definition in definitions
        for edge in definition.edges
    ]
    database.run_many("insert_edge", edges)


def _take(database: Database, move: Move, definitions: Mapping[str, Definition], revision: str) -> None:
    model = move.change.model
    if move.change.change == "removed":
        database.run("remove_model", model=model)
        _drop_tasks(
            database, database.values("kept_generations", int, model=model), "cancelled", "its model was removed"
        )
    if move.retire:
        database.run("retire", generations=list(move.retire))
        _drop_tasks(database, move.retire, "superseded", "a newer revision replaced it")
    if move.begin is None:
        return
    # what still runs on the table that serves would run the new query under the old fingerprint
    _drop_tasks(database, database.values("kept_generations", int, model=model), "superseded", "its model is rebuilt")
    identity = uuid4()
    database.run(
        "insert_generation",
        id=identity,
        model=model,
        revision=revision,
        fingerprint=definitions[model].fingerprint,
        lineage=move.lineage,
        location=f"{model.replace('.', '/', 1)}/{identity}",
        state=move.begin,
    )


def _drop_tasks(database: Database, generations: Sequence[int], state: str, reason: str) -> None:
    if generations:
        lock_active(database, generations=generations)
        database.run("drop_tasks", generations=list(generations), state=state, reason=reason)
