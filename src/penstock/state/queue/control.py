"""How do people stop work, and let it go on?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from psycopg.types.json import Jsonb

from penstock.errors import UnknownModelError
from penstock.state.database.connection import Database
from penstock.state.database.wakeup import wake_cancelled
from penstock.state.queue.tasks import lock_active


@dataclass(frozen=True, slots=True)
class Control:
    _database: Database

    def pause(self, model: str, actor: str) -> None:
        """Nothing of the model is planned or claimed any more; what runs may end."""
        with self._database.transaction():
            self._desire(model, "paused")
            self._audit(actor, "pause", model)
            self._database.run("wake")

    def resume(self, model: str, actor: str) -> None:
        """Plan and claim again, also what died or was cancelled."""
        with self._database.transaction():
            self._desire(model, "running")
            self.go_on_all([model])
            let_go = self._database.run("clear_holds", models=[model])
            self._audit(actor, "resume", model, holds=let_go)
            self._database.run("wake")

    def clear_holds(self, model: str) -> None:
        """Plan again what is dead or was cancelled: a person asked for the model."""
        self.go_on_all([model])
        if self._database.run("clear_holds", models=[model]):
            self._database.run("wake")

    def go_on(self, generation: int) -> None:
        """Let a suspended generation be tried again: one of its inputs has changed."""
        self._go_on(generation, "go_on")

    def go_on_all(self, models: Sequence[str]) -> None:
        """Let those of these models that are suspended be tried again: a person asks for them."""
        for generation in self._database.values("suspended_generations", int, models=list(models)):
            self._go_on(generation, "begin_again")

    def _go_on(self, generation: int, statement: Literal["go_on", "begin_again"]) -> None:
        """What was left in the queue is a part of what failed: it is planned anew."""
        with self._database.transaction():
            self._database.run("lock_failures", generation=generation)
            if self._database.run(statement, generation=generation):
                self._database.run("drop_waiting", generation=generation)
                self._database.run("forget_deaths", generation=generation)
                self._database.run("wake")

    def cancel_model(self, model: str, actor: str) -> int:
        """Take every active task of the model away; how many."""
        with self._database.transaction():
            if model not in (known := self._database.values("controlled_models", str)):
                raise UnknownModelError(model, known)
            self._database.run("lock_generations", models=[model])
            cancelled = self._cancel(actor, model=model)
            self._audit(actor, "cancel", model, tasks=cancelled)
            wake_cancelled(self._database)
        return cancelled

    def cancel_task(self, task: int, actor: str) -> bool:
        """Take one task away; False when it had ended already."""
        with self._database.transaction():
            generation = self._database.value("generation_of_task", int, task=task)
            if generation is None:
                return False
            self._database.run("lock_generation", generation=generation)
            cancelled = self._cancel(actor, task=task)
            self._audit(actor, "cancel", f"task {task}", tasks=cancelled)
            wake_cancelled(self._database)
        return bool(cancelled)

    def resume_task(self, task: int, actor: str) -> bool:
        """Let the scope of a dead or cancelled task be planned again; False when nothing held it."""
        with self._database.transaction():
            let_go = self._database.run("resume_task", task=task)
            if let_go:
                self.go_on_all(self._database.values("model_of_task", str, task=task))
            self._audit(actor, "resume", f"task {task}", holds=let_go)
            self._database.run("wake")
        return bool(let_go)

    def _cancel(self, actor: str, *, task: int | None = None, model: str | None = None) -> int:
        active = lock_active(self._database, task=task, model=model)
        return self._database.value("cancel_tasks", int, tasks=active, reason=f"cancelled by {actor}") or 0

    def _desire(self, model: str, desired: Literal["running", "paused"]) -> None:
        if not self._database.run("desire", model=model, desired=desired):
            raise UnknownModelError(model, self._database.values("controlled_models", str))

    def _audit(self, actor: str, action: str, subject: str, **detail: int) -> None:
        self._database.run("audit", actor=actor, action=action, subject=subject, detail=Jsonb(detail))
