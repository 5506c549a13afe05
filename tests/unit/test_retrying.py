"""An attempt waits for its database as long as it is worth it, and no longer."""

from __future__ import annotations

import pytest

from penstock.errors import BusyError, ConflictError, LeaseLostError, PenstockError, StateError
from penstock.runtime.process import retrying


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "FIRST_PAUSE_SECONDS", 0.0)


def failing(times: int, error: Exception) -> list[Exception]:
    return [error] * times


@pytest.mark.parametrize("error", [StateError("down"), BusyError("somebody else has the lock")])
def test_what_fails_for_want_of_the_database_is_done_again(error: PenstockError) -> None:
    errors = failing(3, error)

    def act() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert retrying.patiently(act, lambda: True) == "done"


def test_it_is_given_up_once_somebody_else_may_have_the_task() -> None:
    worth = iter([True, True, False])

    def act() -> str:
        raise StateError("down")

    with pytest.raises(LeaseLostError, match="down"):
        retrying.patiently(act, lambda: next(worth))


def test_other_errors_are_nobodys_to_wait_for() -> None:
    def act() -> str:
        raise ConflictError("another commit came between")

    with pytest.raises(ConflictError):
        retrying.patiently(act, lambda: True)
