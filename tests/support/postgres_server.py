"""A PostgreSQL server of a test's own, on a TCP port, that can be stopped, crashed and killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import TracebackType
from typing import Self

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.embedded.account import usable_accounts
from penstock.embedded.binaries import find, programs_for
from penstock.embedded.cluster import USER, make_cluster, password
from penstock.embedded.folders import make_folders
from penstock.embedded.locks import lock, try_lock
from penstock.embedded.place import Place, control_folder, reason_against_home
from penstock.embedded.polling import poll

HOST = "127.0.0.1"
_SECONDS = 60.0
# No fsync here: it stays on, else a crash would say nothing.
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "150",
    "max_wal_size": "256MB",
    "autovacuum_naptime": "15s",
    "log_line_prefix": "%m [%p] %a ",
}


class PostgresServer:
    """The folder must be one that other accounts can reach: PostgreSQL does not run as root."""

    def __init__(self, folder: Path) -> None:
        make_folders(control_folder(folder), 0o700)
        account = next(usable_accounts(os.environ, os.geteuid(), os.getegid(), str(folder)))
        home = folder / "server"
        if problem := reason_against_home(home, account):
            raise OSError(f"{home}: {problem}")
        self._programs = programs_for(account, find(os.environ))
        place = Place("test", folder, home, home / "run", account, initialised=False)
        with _held(place) as held:
            self._place = make_cluster(place, self._programs, held)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def dsn(self) -> str:
        return self.dsn_at(HOST, self.port)

    def dsn_at(self, host: str, port: int) -> str:
        """The same database through another door."""
        word = password(self._place.project)
        return make_conninfo("", host=host, port=port, user=USER, password=word, dbname="postgres", connect_timeout=10)

    @property
    def log(self) -> Path:
        return self._place.log

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start and wait until it answers, through its recovery if it needs one."""
        assert self._process is None
        account = self._place.account
        other = os.geteuid() != account.uid
        options = [word for name, value in self._settings().items() for word in ("-c", f"{name}={value}")]
        program = str(self._programs.folder / "postgres")
        with _held(self._place) as held, self.log.open("ab") as log:
            # the lock is ours: whatever this file says is about a server that is gone
            (self._place.data / "postmaster.pid").unlink(missing_ok=True)
            self._process = subprocess.Popen(
                [program, "-D", str(self._place.data), "-p", str(self.port), *options],
                user=account.uid if other else None,
                group=account.gid if other else None,
                extra_groups=[] if other else None,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(held,),
                env={"PATH": "/usr/bin:/bin", "LANG": "C", "TZ": "UTC"},
                cwd="/",
                start_new_session=True,
            )
        assert poll(self._answers, _SECONDS), self.log.read_text()[-2000:]

    def stop(self) -> None:
        """As an administrator would: open transactions are rolled back, what is committed is on disk."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """An immediate stop: no checkpoint, recovery at the next start."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """kill -9 of the postmaster; its children notice by themselves."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.crash()

    def _settings(self) -> dict[str, str]:
        return _SETTINGS | ({"io_method": "sync"} if self._programs.major >= 18 else {})

    def _answers(self) -> bool | None:
        assert self._process is not None
        if self._process.poll() is not None:
            return False
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn).close()
            return True
        return None

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(_SECONDS)
        self._process = None
        with _held(self._place):  # every process of the server inherited this lock: now all of them are gone
            return


@contextmanager
def own_server() -> Iterator[PostgresServer]:
    """A started server in a temporary folder."""
    folder = Path(mkdtemp(prefix="server-", dir=os.environ.get("PENSTOCK_PG_HOME")))
    folder.chmod(0o755)
    try:
        with PostgresServer(folder) as server:
            yield server
    finally:
        rmtree(folder, ignore_errors=True)


@contextmanager
def _held(place: Place) -> Iterator[int]:
    handle = try_lock(place.server_lock) or lock(place.server_lock)
    try:
        yield handle
    finally:
        os.close(handle)


def free_port() -> int:
    """Below the ports that the kernel hands out: else somebody could get this one while the server is down."""
    for port in random.sample(range(20000, 32000), 200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise OSError("no free port")
