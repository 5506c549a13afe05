"""Who holds a lock file? The kernel knows, and it forgets a holder that dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.embedded.polling import poll
from penstock.errors import StateError

_WAIT_SECONDS = 180.0


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds the lock until its last copy is closed, or None when somebody else holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        keep_owner(handle, path.parent)
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def lock(path: Path, *, shared: bool = False) -> int:
    """Like `try_lock`, but waits for the others."""
    handle = poll(lambda: try_lock(path, shared=shared), _WAIT_SECONDS)
    if handle is None:
        raise StateError(
            f"another process has held {path} for {_WAIT_SECONDS:.0f} s",
            hint="find out which command is starting or stopping the embedded PostgreSQL, and end it",
        )
    return handle


@contextmanager
def locked(path: Path) -> Iterator[None]:
    handle = lock(path)
    try:
        yield
    finally:
        os.close(handle)


def keep_owner(handle: int, folder: Path) -> None:
    """What root makes in a user's folder stays the user's: the next command may not be root."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)
