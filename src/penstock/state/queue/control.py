"""How do people stop work, and let it go on?"""

from __future__ import annotations

from typing import Literal

from psycopg.types.json import Jsonb

from penstock.errors import UnknownModelError
from penstock.state.database.connection import Database
from penstock.state.database.wakeup import wake_cancelled
from penstock.state.queue.suspension import go_on_all
from penstock.state.queue.tasks import lock_active


def pause(database: Database, model: str, actor: str) -> None:
    """Nothing of the model is planned or claimed any more; what runs may end."""
    with database.transaction():
        _desire(database, model, "paused")
        _audit(database, actor, "pause", model)
        database.run("wake")


def resume(database: Database, model: str, actor: str) -> None:
    """Plan and claim again, also what died or was cancelled."""
    with database.transaction():
        _desire(database, model, "running")
        go_on_all(database, [model])
        let_go = database.run("clear_holds", models=[model])
        _audit(database, actor, "resume", model, holds=let_go)
        database.run("wake")


def clear_holds(database: Database, model: str) -> None:
    """Plan again what died or was cancelled: somebody asked for the model anew."""
    go_on_all(database, [model])
    if database.run("clear_holds", models=[model]):
        database.run("wake")


def cancel_model(database: Database, model: str, actor: str) -> int:
    """Take every active task of the model away; how many."""
    with database.transaction():
        if model not in (known := database.values("controlled_models", str)):
            raise UnknownModelError(model, known)
        database.run("lock_generations", models=[model])
        cancelled = _cancel(database, actor, model=model)
        _audit(database, actor, "cancel", model, tasks=cancelled)
        wake_cancelled(database)
    return cancelled


def cancel_task(database: Database, task: int, actor: str) -> bool:
    """Take one task away; False when it had ended already."""
    with database.transaction():
        generation = database.value("generation_of_task", int, task=task)
        if generation is None:
            return False
        database.run("lock_generation", generation=generation)
        cancelled = _cancel(database, actor, task=task)
        _audit(database, actor, "cancel", f"task {task}", tasks=cancelled)
        wake_cancelled(database)
    return bool(cancelled)


def resume_task(database: Database, task: int, actor: str) -> bool:
    """Let the scope of a dead or cancelled task be planned again; False when nothing held it."""
    with database.transaction():
        let_go = database.run("resume_task", task=task)
        if let_go:
            go_on_all(database, database.values("model_of_task", str, task=task))
        _audit(database, actor, "resume", f"task {task}", holds=let_go)
        database.run("wake")
    return bool(let_go)


def _cancel(database: Database, actor: str, *, task: int | None = None, model: str | None = None) -> int:
    found = lock_active(database, task=task, model=model)
    return database.value("cancel_tasks", int, tasks=found, reason=f"cancelled by {actor}") or 0


def _desire(database: Database, model: str, desired: Literal["running", "paused"]) -> None:
    if not database.run("desire", model=model, desired=desired):
        raise UnknownModelError(model, database.values("controlled_models", str))


def _audit(database: Database, actor: str, action: str, subject: str, **detail: int) -> None:
    database.run("audit", actor=actor, action=action, subject=subject, detail=Jsonb(detail))
