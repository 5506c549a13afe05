"""When does the server stop? Some time after its last client, however that client ended.

Started by its path as a process of its own, with only the standard library at hand: it imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_PAUSE_SECONDS = 0.01
_LOOK_SECONDS = 1.0
_DELETING_SECONDS = 5.0
_POLITE_SECONDS = 60.0
_RESIGNED_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class PidFile:
    """What a server wrote about itself into `postmaster.pid`."""

    pid: int
    data: str
    ready: bool


def read_pid_file(data: str) -> PidFile | None:
    try:
        lines = Path(data, "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        # The eighth line is the state; it is missing while the server is still writing the file.
        return PidFile(int(lines[0]), lines[1], len(lines) > 7 and lines[7].strip() == "ready")
    except (OSError, ValueError, IndexError):
        return None


def is_server(pid: int, data: str) -> bool:
    """Whether the process is a live `postgres` started for this data directory, and not a stranger with its old pid.

    Only what every user may read of a foreign process is used: `/proc/PID/cwd` needs a capability that containers lack.
    """
    process = Path("/proc", str(pid))
    try:
        name, _, rest = process.joinpath("stat").read_text(errors="replace").partition("(")[2].rpartition(")")
        arguments = process.joinpath("cmdline").read_bytes().split(b"\0")
    except OSError:
        return not Path("/proc/self").exists() and _ps_shows_server(pid, data)
    return name == "postgres" and rest.split()[0] != "Z" and os.fsencode(data) in arguments


def _ps_shows_server(pid: int, data: str) -> bool:
    shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False).stdout
    return b"postgres -D " + os.fsencode(data) in shown


def linger_note(seconds: float) -> bytes:
    """What a client leaves in the file of the clients' lock: how long the server is to stay after it, and a mark."""
    return f"{seconds:012.3f} {os.urandom(8).hex()}\n".encode()


def linger_seconds(left: bytes) -> float:
    try:
        return float(left.split()[0])
    except (ValueError, IndexError):
        return 0.0


def watch(clients: int, server: int) -> None:
    """Wait until no client is left or came back in time, then stop the server of the working directory.

    `clients` stays locked, so nobody attaches meanwhile.
    """
    last = _wait_for_the_last_client(clients)
    _let_them_delete(clients)
    began = time.monotonic()
    asked = 0
    while not _free(server) and (waited := time.monotonic() - began) < _RESIGNED_SECONDS:
        pid_file = read_pid_file(os.curdir) or last
        # A server that is only just starting has no pid file yet: look again.
        if pid_file is not None and is_server(pid_file.pid, pid_file.data):
            # what was deleted is not worth a checkpoint, which would only be in the way of whoever deletes it
            how = signal.SIGINT if waited < _POLITE_SECONDS and not _deserted(clients) else signal.SIGQUIT
            if asked != how:
                _signal(pid_file.pid, how)
                asked = how
        time.sleep(_PAUSE_SECONDS)


def _wait_for_the_last_client(clients: int) -> PidFile | None:
    """What the server wrote about itself, once nobody came for as long as the last client wished; `clients` is locked.

    In between the lock is let go: whoever comes finds the server as it is.
    """
    fcntl.flock(clients, fcntl.LOCK_EX)
    last, left, since = read_pid_file(os.curdir), _left(clients), time.monotonic()
    while (rest := since + linger_seconds(left) - time.monotonic()) > 0 and not _deserted(clients):
        fcntl.flock(clients, fcntl.LOCK_UN)
        time.sleep(min(rest, _LOOK_SECONDS))
        fcntl.flock(clients, fcntl.LOCK_EX)  # waits for those who came
        if (now := _left(clients)) != left:
            last, left, since = read_pid_file(os.curdir), now, time.monotonic()
    return last


def _let_them_delete(clients: int) -> None:
    """Whoever is just deleting the project would stumble over files that the server takes away as it ends."""
    until = time.monotonic() + _DELETING_SECONDS
    while _deserted(clients) and Path("postmaster.pid").exists() and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


def _left(clients: int) -> bytes:
    return os.pread(clients, 100, 0)


def _deserted(clients: int) -> bool:
    """Whether the project or its database was deleted."""
    return os.fstat(clients).st_nlink == 0 or not Path("PG_VERSION").exists()


def _free(server: int) -> bool:
    """Whether no PostgreSQL process of this project is left: each of them inherited the lock."""
    try:
        fcntl.flock(server, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(server, fcntl.LOCK_UN)
    return True


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def main(arguments: list[str]) -> None:
    """Arguments: inherited descriptors of the watcher's lock, held, of the two other locks and the data directory."""
    here, clients, server, data = map(int, arguments)
    os.fchdir(data)
    watch(clients, server)
    # In this order: whoever attaches next must already see that no watcher is left.
    os.close(here)
    os.close(clients)


if __name__ == "__main__":
    main(sys.argv[1:])
