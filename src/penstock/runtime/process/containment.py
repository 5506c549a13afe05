"""Unexpected exceptions: one ends its task, model or source, and not the process."""

from __future__ import annotations

import traceback
from typing import Protocol
from uuid import UUID

from penstock.errors import EngineError, PenstockError
from penstock.runtime.process.logs import log
from penstock.values.tasks import Lease

_TRACEBACK_CHARACTERS = 3_500
"""The end of a traceback says most; a line of the log holds a little more."""


class Cancels(Protocol):
    def cancel(self, task: UUID, attempt: int) -> None: ...


def contained(error: BaseException, **about: object) -> PenstockError:
    """What ends one task, model or source and nothing else; what is meant for the whole process is raised again."""
    if isinstance(error, PenstockError):
        return error
    if not isinstance(error, Exception) and not _panicked(error):
        raise error
    shown = "".join(traceback.format_exception(error))[-_TRACEBACK_CHARACTERS:]
    log("unexpected_error", "error", type=_kind(error), traceback=shown, **about)
    return EngineError(f"{_kind(error)}: {_first_line(error)}", hint="its log has the traceback")


def cancel(engine: Cancels, lease: Lease) -> None:
    """End what an attempt still runs; one that cannot be ended finds out by itself that its lease is gone."""
    try:
        engine.cancel(lease.uuid, lease.attempt)
    except BaseException as error:
        failure = contained(error, task=lease.task, attempt=lease.attempt, model=lease.order.model)
        log("cancel_failed", "warning", task=lease.task, attempt=lease.attempt, error=failure.message)


def _panicked(error: BaseException) -> bool:
    """A fault in a library written in Rust, such as delta-rs: its class is no Exception, and cannot be imported."""
    return type(error).__module__ == "pyo3_runtime"


def _first_line(error: BaseException) -> str:
    """Some libraries append a stack to their messages."""
    return str(error).strip().split("\n", 1)[0] or "it says no more"


def _kind(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ in ("builtins", "pyo3_runtime") else f"{kind.__module__}.{kind.__name__}"
