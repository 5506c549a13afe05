"""Does the embedded PostgreSQL come back for those who are still there?"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from penstock.embedded import attachment
from penstock.embedded.locks import try_lock
from penstock.embedded.place import Place, control_folder, read_place
from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres
from penstock.errors import StateError

ENVIRON = {"PATH": os.environ["PATH"], "PENSTOCK_PG_LINGER": "0"}
SOURCES = Path(attachment.__file__).parents[3]

# A client that revives the server whenever it is asked to, and then says which one it has and what is in it.
CLIENT = """
import os, sys
from pathlib import Path
import psycopg
from penstock.embedded.server import EmbeddedPostgres
project = Path(sys.argv[1])
with EmbeddedPostgres.attach(project, os.environ) as server:
    print("attached", flush=True)
    while sys.stdin.readline():
        server.revive()
        with psycopg.connect(server.dsn) as line:
            rows = line.execute("select count(*) from seen").fetchone()[0]
        print(EmbeddedPostgres.inspect(project, os.environ).running_pid, rows, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Client:
    process: subprocess.Popen[str]

    def ask(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("revive\n")
        self.process.stdin.flush()

    def answer(self) -> list[int]:
        """The server's pid, and the number of rows."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return [int(word) for word in (self.process.stdout.readline() or self.process.stderr.read()).split()]

    def leave(self) -> None:
        self.process.communicate()


@pytest.fixture
def project() -> Iterator[Path]:
    """A project whose database has one row; its folder is one that every account can reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="revival-")).resolve()
    made.chmod(0o755)
    with EmbeddedPostgres.attach(made, ENVIRON) as server, psycopg.connect(server.dsn) as line:
        line.execute("create table seen as select 1 as n")
    yield made
    assert until(lambda: all_gone(made)), "a server is left"
    shutil.rmtree(made)


@pytest.fixture
def client(project: Path) -> Iterator[Callable[[], Client]]:
    started: list[Client] = []

    def start() -> Client:
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(project)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "attached\n"
        started.append(Client(process))
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.process.kill()
            each.process.communicate()


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    return poll(lambda: condition() or None, seconds) is True


def placed(project: Path) -> Place:
    place = read_place(project)
    assert place is not None
    return place


def running_pid(project: Path) -> int | None:
    return EmbeddedPostgres.inspect(project, ENVIRON).running_pid


def is_free(lock_file: Path) -> bool:
    held = try_lock(lock_file)
    if held is not None:
        os.close(held)
    return held is not None


def all_gone(project: Path) -> bool:
    return is_free(placed(project).server_lock)


def kill_server(project: Path, how: signal.Signals = signal.SIGKILL) -> int:
    """End the postmaster only; its children find out by themselves."""
    pid = running_pid(project)
    assert pid is not None
    os.kill(pid, how)
    assert until(lambda: running_pid(project) is None)
    return pid


def watcher(project: Path) -> int | None:
    """The pid of the watcher once it waits for the clients to leave, out of the kernel's list of lock waiters."""
    clients = f":{(control_folder(project) / 'clients').stat().st_ino} "
    for line in Path("/proc/locks").read_text().splitlines():
        if "-> FLOCK" in line and clients in line:
            return int(line.split()[5])
    return None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGQUIT])
def test_two_processes_that_revive_a_dead_server_at_once_get_one_with_all_its_rows(
    project: Path, client: Callable[[], Client], how: signal.Signals
) -> None:
    clients = [client(), client()]
    watching = poll(lambda: watcher(project), 20)
    dead = kill_server(project, how)
    for each in clients:
        each.ask()
    first, second = (each.answer() for each in clients)
    assert first == second
    assert first[0] != dead
    assert first[1] == 1
    assert watcher(project) == watching is not None
    clients[0].leave()
    assert running_pid(project) == first[0]
    clients[1].leave()
    assert until(lambda: all_gone(project))


def test_a_server_that_is_up_stays_as_it_is_and_costs_next_to_nothing(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server, psycopg.connect(server.dsn) as line:
        pid = running_pid(project)
        took = []
        for _ in range(5):
            began = time.perf_counter()
            server.revive()
            took.append(time.perf_counter() - began)
        assert min(took) < 0.06
        assert running_pid(project) == pid
        assert line.execute("select 1").fetchone() == (1,)


def test_a_backend_in_the_middle_of_a_statement_does_not_keep_the_server_from_coming_back(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server, ThreadPoolExecutor(1) as pool:
        line = psycopg.connect(server.dsn, autocommit=True)
        sleeping = pool.submit(line.execute, "select pg_sleep(60)")
        with psycopg.connect(server.dsn, autocommit=True) as other:
            query = "select from pg_stat_activity where wait_event = 'PgSleep'"
            assert until(lambda: other.execute(query).fetchone() is not None)
        dead = kill_server(project)
        server.revive()
        assert isinstance(sleeping.exception(20), psycopg.OperationalError)
        assert running_pid(project) not in (dead, None)
        line.close()


def test_threads_of_one_process_may_revive_at_once(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server, ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            kill_server(project)
            for done in [pool.submit(server.revive) for _ in range(8)]:
                done.result()
            with psycopg.connect(server.dsn) as line:
                assert line.execute("select count(*) from seen").fetchone() == (1,)


def test_a_watcher_that_died_too_is_replaced(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        watching = poll(lambda: watcher(project), 20)
        assert watching is not None
        os.kill(watching, signal.SIGKILL)
        assert until(lambda: is_free(control_folder(project) / "watcher"))
        kill_server(project)
        server.revive()
        assert not is_free(control_folder(project) / "watcher")
    assert until(lambda: all_gone(project))


def test_a_client_that_was_closed_revives_nothing_that_stays(project: Path) -> None:
    server = EmbeddedPostgres.attach(project, ENVIRON)
    server.close()
    server.revive()
    assert until(lambda: all_gone(project))


def test_unless_somebody_revives_it_a_dead_server_stays_dead(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        kill_server(project)
        assert until(lambda: all_gone(project))
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn)


def test_a_server_that_comes_back_elsewhere_is_an_error_that_says_what_to_do(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        monkeypatch.setattr(attachment, "PORT", 1)
        with pytest.raises(StateError, match="elsewhere"):
            server.revive()
