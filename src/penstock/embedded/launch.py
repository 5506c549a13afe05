"""Is the server up, and if not, how does it come up?"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.embedded import watch
from penstock.embedded.binaries import Programs
from penstock.embedded.configuration import command, configure
from penstock.embedded.locks import keep_owner, try_lock
from penstock.embedded.place import Place, control_folder
from penstock.embedded.polling import poll
from penstock.errors import StateError

_START_SECONDS = 120.0
_ORPHAN_SECONDS = 60.0
_LARGEST_LOG_BYTES = 4_000_000
_TAIL_BYTES = 2000


def answering(place: Place) -> int | None:
    """The pid of the server when it is ready and is the one of this data directory; asks no password and no query."""
    written = watch.read_pid_file(str(place.data))
    if written is None or not written.ready:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(5)
            line.connect(str(place.socket))
            listener = _listener(line)
    except OSError:
        return None
    if listener is None or listener == written.pid:
        return written.pid
    # A server inside a container wrote the pid it has there.
    return listener if watch.is_server(listener, written.data) else None


def _listener(line: socket.socket) -> int | None:
    """The pid of the process that listens there; None when the system does not tell, or not across containers."""
    if sys.platform == "linux":
        credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0]) or None
    return None


@dataclass(frozen=True, slots=True)
class Up:
    pid: int


@dataclass(frozen=True, slots=True)
class Down:
    """No PostgreSQL process of this place is left; `held` is their lock, now ours."""

    held: int


def up_or_down(place: Place) -> Up | Down:
    """What is there, after waiting for a server that is coming up or going away."""
    state = poll(partial(_look, place), _ORPHAN_SECONDS)
    if state is None:
        raise StateError(
            f"PostgreSQL processes of {place.data} are still running, but no server answers at {place.socket}",
            hint=f"look into {place.log}, end these processes, and try again",
        )
    return state


def _look(place: Place) -> Up | Down | None:
    pid = answering(place)
    if pid is not None:
        return Up(pid)
    held = try_lock(place.server_lock)
    return None if held is None else Down(held)


def launch(place: Place, programs: Programs, held: int) -> None:
    """Start the server, which inherits `held`, and wait until it is ready; close `held` in any case."""
    log = _open_log(place)
    try:
        configure(place)
        # The lock is ours, so whatever these files say is about a server that is gone, even if its pid lives again.
        for stale in (place.data / "postmaster.pid", place.socket, place.socket.with_name(f"{place.socket.name}.lock")):
            stale.unlink(missing_ok=True)
        before = os.fstat(log).st_size
        # Through a shell, so that the server is a child of init and never a zombie of this process.
        place.account.run(
            ["/bin/sh", "-c", 'umask 077; "$@" &', "sh", *command(place, programs)], keep=(held,), output=log
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StateError(f"PostgreSQL cannot be run as uid {place.account.uid}: {error}") from error
    finally:
        os.close(log)
        os.close(held)
    match poll(partial(_look, place), _START_SECONDS):
        case Up():
            return
        case Down(free):
            os.close(free)
            problem = "ended at once"
        case _:
            problem = f"was not ready after {_START_SECONDS:.0f} s"
    raise StateError(
        f"the embedded PostgreSQL {problem}; {place.log} ends with:\n{_tail(place.log, before)}",
        hint="repair what it complains about, or give a PostgreSQL server as `state:`",
    )


def _open_log(place: Place) -> int:
    if place.log.exists() and place.log.stat().st_size > _LARGEST_LOG_BYTES:
        place.log.replace(place.log.with_name("server.log.1"))
    handle = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    keep_owner(handle, place.home)
    return handle


def _tail(log: Path, since: int) -> str:
    with log.open("rb") as file:
        file.seek(max(since, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace").strip() or "(nothing)"


def ensure_watcher(place: Place, environ: Mapping[str, str]) -> None:
    """One process per project outlives the clients and then stops the server; call it as a client."""
    control = control_folder(place.project)
    here = try_lock(control / "watcher")
    if here is None:
        return
    handles = [here]
    try:
        # Descriptors and no paths, so that the watcher finds everything even after the project was moved.
        handles.append(os.open(control / "clients", os.O_RDWR))
        handles.append(os.open(place.server_lock, os.O_RDWR))
        handles.append(os.open(place.data, os.O_RDONLY | os.O_DIRECTORY))
        # Its own file, isolated and without site packages: a few milliseconds, and nothing of the project is imported.
        program = [sys.executable, "-I", "-S", "-W", "ignore", watch.__file__]
        # Through a shell, so that it is a child of init and never a zombie of this process.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *program, *map(str, handles)],
            pass_fds=handles,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=dict(environ),
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StateError(f"{sys.executable} cannot be started to watch the embedded PostgreSQL: {error}") from error
    finally:
        for handle in handles:
            os.close(handle)
