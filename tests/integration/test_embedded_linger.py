"""Does the project's own PostgreSQL stay for the next command, and not for ever?"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from penstock.embedded import attachment, watch
from penstock.embedded.locks import try_lock
from penstock.embedded.place import Place, control_folder, read_place
from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres
from penstock.errors import StateError

AT_ONCE = {"PATH": os.environ["PATH"], "PENSTOCK_PG_LINGER": "0"}
LONG = AT_ONCE | {"PENSTOCK_PG_LINGER": "600"}
SOURCES = Path(attachment.__file__).parents[3]

CLIENT = """
import os, sys
from pathlib import Path
from penstock.embedded.server import EmbeddedPostgres
with EmbeddedPostgres.attach(Path(sys.argv[1]), os.environ):
    print("attached", flush=True)
    sys.stdin.read()
"""


def placed(project: Path) -> Place:
    found = read_place(project)
    assert found is not None
    return found


def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    return poll(lambda: condition() or None, seconds) is True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def visit(project: Path, environ: dict[str, str]) -> int:
    """Come and leave; the pid of the server."""
    with EmbeddedPostgres.attach(project, environ) as server, psycopg.connect(server.dsn) as line:
        line.execute("create table if not exists seen as select 1")
        assert line.execute("select count(*) from seen").fetchone() == (1,)
        pid = EmbeddedPostgres.inspect(project, environ).running_pid
    assert pid is not None
    return pid


def watcher_is_back(project: Path) -> bool:
    """Whether the watcher has seen the last client leave and let go of the lock again."""
    held = try_lock(control_folder(project) / "clients")
    if held is not None:
        os.close(held)
    return held is not None


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="linger-")).resolve()
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def project(folder: Path) -> Path:
    made = folder / "project"
    made.mkdir()
    return made


def test_the_server_stays_for_the_next_command_as_long_as_the_last_client_asked(project: Path) -> None:
    pid = visit(project, LONG)
    assert until(lambda: watcher_is_back(project))
    assert visit(project, LONG) == pid
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(project)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **LONG, "PYTHONPATH": str(SOURCES)},
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "attached\n"
    client.send_signal(signal.SIGKILL)
    client.communicate()
    assert until(lambda: watcher_is_back(project)), "a killed client is gone, too"
    assert visit(project, AT_ONCE) == pid
    assert until(lambda: not alive(pid))
    pid = visit(project, AT_ONCE | {"PENSTOCK_PG_LINGER": "0.3"})
    assert until(lambda: not alive(pid)), "nobody came"


def test_a_project_that_is_moved_or_copied_while_its_server_lingers_is_judged_as_ever(
    folder: Path, project: Path
) -> None:
    pid = visit(project, LONG)
    subprocess.run(["cp", "-a", str(project), str(folder / "copy")], check=True)
    with pytest.raises(StateError, match="is a copy of"):
        EmbeddedPostgres.attach(folder / "copy", LONG)
    moved = project.rename(folder / "moved")
    assert visit(moved, LONG) == pid
    assert visit(moved, AT_ONCE) == pid
    assert until(lambda: not alive(pid))


@pytest.mark.parametrize("outside", [False, True])
def test_a_deleted_project_has_no_server_for_long(folder: Path, project: Path, outside: bool) -> None:
    pid = visit(project, LONG | ({"PENSTOCK_PG_HOME": str(folder / "homes")} if outside else {}))
    subprocess.run(["rm", "-rf", str(project)], check=True)
    assert not project.exists()
    assert until(lambda: not alive(pid))


@pytest.mark.parametrize("told", ["soon", "-1", "nan", "inf", "1e9", ""])
def test_a_time_without_sense_is_an_error(project: Path, told: str) -> None:
    with pytest.raises(StateError, match="PENSTOCK_PG_LINGER is"):
        EmbeddedPostgres.attach(project, AT_ONCE | {"PENSTOCK_PG_LINGER": told})


@dataclass(slots=True)
class Clock:
    """Time passes only while somebody sleeps."""

    now: float = 0.0
    then: dict[float, Callable[[], object]] = field(default_factory=dict)
    """What happens when."""

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in sorted(at for at in self.then if at <= self.now):
            self.then.pop(at)()


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "PG_VERSION").touch()
    handle = os.open(tmp_path / "clients", os.O_RDWR | os.O_CREAT)
    os.pwrite(handle, watch.linger_note(10), 0)
    yield handle
    os.close(handle)


def waited(clients: int, patch: pytest.MonkeyPatch, then: dict[float, Callable[[], object]]) -> float:
    clock = Clock(then=then)
    patch.setattr(watch, "time", clock)
    watch._wait_for_the_last_client(clients)
    return clock.now


def test_whoever_comes_begins_the_time_anew(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    come: Callable[[], object] = lambda: os.pwrite(clients, watch.linger_note(10), 0)  # noqa: E731
    hurry: Callable[[], object] = lambda: os.pwrite(clients, watch.linger_note(0), 0)  # noqa: E731
    assert waited(clients, monkeypatch, {}) == 10
    assert waited(clients, monkeypatch, {9: come}) == 19
    assert waited(clients, monkeypatch, {9: come, 12: hurry}) == 12


def test_without_a_mark_of_its_own_nobody_would_notice(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "linger_note", lambda seconds: os.pread(clients, 100, 0))
    assert waited(clients, monkeypatch, {9: lambda: os.pwrite(clients, watch.linger_note(10), 0)}) == 10


@pytest.mark.parametrize("deleted", ["clients", "PG_VERSION"])
def test_nobody_waits_for_what_was_deleted(clients: int, monkeypatch: pytest.MonkeyPatch, deleted: str) -> None:
    assert waited(clients, monkeypatch, {3: lambda: Path(deleted).unlink()}) == 3


def test_unless_somebody_looked_it_would_linger(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_deserted", lambda clients: False)
    assert waited(clients, monkeypatch, {3: lambda: Path("clients").unlink()}) == 10


def test_a_time_that_cannot_be_read_is_none() -> None:
    assert watch.linger_seconds(watch.linger_note(12.5)) == 12.5
    assert len(watch.linger_note(0)) == len(watch.linger_note(86_400))
    assert watch.linger_seconds(b"") == watch.linger_seconds(b"rubbish") == 0
