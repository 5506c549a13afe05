"""Does the project's own PostgreSQL live as long as its clients, and not longer than they wish, whatever is killed?"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from penstock.embedded import attachment, watch
from penstock.embedded.locks import try_lock
from penstock.embedded.place import Place, control_folder, read_place
from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres, refuse_platform
from penstock.errors import StateError
from penstock.state.database.connection import Database

ENVIRON = {"PATH": os.environ["PATH"], "PENSTOCK_PG_LINGER": "0"}
SOURCES = Path(attachment.__file__).parents[3]

# A client that says which server it has, and stays until its standard input ends.
CLIENT = """
import os, sys
from pathlib import Path
import psycopg
from penstock.embedded.server import EmbeddedPostgres
with EmbeddedPostgres.attach(Path(sys.argv[1]), os.environ) as server, psycopg.connect(server.dsn) as line:
    line.execute("select 1")
    print(EmbeddedPostgres.inspect(Path(sys.argv[1]), os.environ).running_pid, flush=True)
    sys.stdin.read()
"""


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    return poll(lambda: condition() or None, seconds) is True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def placed(project: Path) -> Place:
    place = read_place(project.resolve())
    assert place is not None
    return place


def running_pid(project: Path) -> int:
    pid = EmbeddedPostgres.inspect(project, ENVIRON).running_pid
    assert pid is not None
    return pid


def is_free(lock_file: Path) -> bool:
    held = try_lock(lock_file)
    if held is not None:
        os.close(held)
    return held is not None


def all_gone(project: Path) -> bool:
    return is_free(placed(project).server_lock)


def processes(pid: int) -> list[int]:
    """The server and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def rows(server: EmbeddedPostgres) -> int:
    with psycopg.connect(server.dsn) as line:
        found = line.execute("select count(*) from seen").fetchone()
    assert found is not None
    return int(found[0])


def add_row(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn) as line:
        line.execute("insert into seen values (1)")


@dataclass(frozen=True, slots=True)
class Client:
    process: subprocess.Popen[str]

    def server_pid(self) -> int:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return int(self.process.stdout.readline() or self.process.stderr.read())

    def leave(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


StartClient = Callable[[Path], Client]


def waiting_watcher(project: Path) -> int | None:
    """The pid of the watcher once it waits for the clients to leave, out of the kernel's list of lock waiters."""
    clients = f":{(control_folder(project) / 'clients').stat().st_ino} "
    for line in Path("/proc/locks").read_text().splitlines():
        if "-> FLOCK" in line and clients in line:
            return int(line.split()[5])
    return None


def watcher_waits_or_server_ends(project: Path, pid: int) -> str:
    """Which of the two comes first."""

    def look() -> str | None:
        if not alive(pid):
            return "the server ends"
        return "the watcher waits" if waiting_watcher(project) else None

    return poll(look, 20) or "neither"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every account can reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="embedded-")).resolve()
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def make_project(folder: Path) -> Iterator[Callable[[str], Path]]:
    made: list[Path] = []

    def make(name: str) -> Path:
        around = Path(tempfile.mkdtemp(dir=folder))
        around.chmod(0o755)
        made.append(around / name)
        made[-1].mkdir(parents=True)
        return made[-1]

    yield make
    for project in made:
        assert until(lambda project=project: all_gone(project)), f"a server of {project} is left"  # type: ignore[misc]
        if not placed(project).run.is_relative_to(folder):
            shutil.rmtree(placed(project).run)


@pytest.fixture
def new_project(make_project: Callable[[str], Path]) -> Path:
    return make_project("project")


@pytest.fixture
def project(folder: Path) -> Iterator[Path]:
    """One project that the tests hand on to each other, as its database is slow to make; no server runs in between."""
    used = folder / "used"
    used.mkdir(exist_ok=True)
    with EmbeddedPostgres.attach(used, ENVIRON) as server, psycopg.connect(server.dsn) as line:
        line.execute("create table if not exists seen (at int)")
        line.execute("truncate seen")
    assert until(lambda: all_gone(used))
    yield used
    assert until(lambda: all_gone(used)), "a server is left"


@pytest.fixture
def client() -> Iterator[StartClient]:
    started: list[Client] = []

    def start(project: Path) -> Client:
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(project)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
        started.append(Client(process))
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.kill()


def test_a_new_project_gets_a_private_server_that_ends_with_its_client(new_project: Path) -> None:
    with EmbeddedPostgres.attach(new_project, ENVIRON) as server:
        pid = running_pid(new_project)
        with psycopg.connect(server.dsn) as line:
            assert line.execute("show listen_addresses").fetchone() == ("",)
            assert line.execute("show fsync").fetchone() == ("on",)
            assert line.execute("show data_directory").fetchone() == (str(placed(new_project).data),)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.dsn.partition("password=")[0] + "password=guess")
        assert stat.S_IMODE(control_folder(new_project).stat().st_mode) == 0o700
        assert stat.S_IMODE((control_folder(new_project) / "secret").stat().st_mode) == 0o600
        assert stat.S_IMODE(placed(new_project).run.stat().st_mode) == 0o700
        assert Path(f"/proc/{pid}").stat().st_uid == placed(new_project).account.uid != 0
    assert until(lambda: not alive(pid))


OUTSIDE = {
    "PGHOST": "/nowhere",
    "PGHOSTADDR": "127.0.0.1",
    "PGPORT": "1",
    "PGUSER": "somebody",
    "PGDATABASE": "elsewhere",
    "PGPASSWORD": "guess",
    "PGPASSFILE": "/nowhere",
    "PGOPTIONS": "-c work_mem=1MB",
    "PGSSLMODE": "verify-full",
    "PGSSLROOTCERT": "system",
    "PGSSLNEGOTIATION": "direct",
    "PGSSLCERTMODE": "require",
    "PGSSLMINPROTOCOLVERSION": "nonsense",
    "PGSSLMAXPROTOCOLVERSION": "nonsense",
    "PGCHANNELBINDING": "require",
    "PGREQUIREAUTH": "md5",
    "PGREQUIREPEER": "somebody",
    "PGGSSENCMODE": "require",
    "PGTARGETSESSIONATTRS": "standby",
    "PGLOADBALANCEHOSTS": "nonsense",
    "PGMINPROTOCOLVERSION": "3.2",
    "PGMAXPROTOCOLVERSION": "nonsense",
    "PGCONNECT_TIMEOUT": "nonsense",
    "PGCLIENTENCODING": "LATIN1",
    "PGAPPNAME": "somebody",
}


def test_no_variable_of_the_environment_leads_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them at once, and each by itself; a service can only fill in what is missing."""
    service = tmp_path / "services"
    service.write_text("[other]\nhost=/nowhere\nhostaddr=127.0.0.1\noptions=-c work_mem=1MB\nsslmode=verify-full\n")
    outside = OUTSIDE | {"PGSERVICE": "other", "PGSERVICEFILE": str(service)}
    cases = [outside, *({name: value} for name, value in OUTSIDE.items()), {k: outside[k] for k in list(outside)[-2:]}]
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        for case in cases:
            with monkeypatch.context() as patch:
                for name, value in case.items():
                    patch.setenv(name, value)
                with psycopg.connect(server.dsn) as line:
                    assert line.execute("show data_directory").fetchone() == (str(placed(project).data),)
                    assert line.execute("show work_mem").fetchone() == ("4MB",)
                    assert line.info.encoding == "utf-8"


def test_a_connection_string_that_says_less_is_led_elsewhere(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "_NOTHING_FROM_OUTSIDE", {})
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    with EmbeddedPostgres.attach(project, ENVIRON) as server, pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.dsn)


def test_settings_of_a_session_come_from_us(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTZ", "Australia/Brisbane")
    monkeypatch.setenv("PGDATESTYLE", "German")
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        database = Database.connect(server.dsn, "public")
        found = database.connection.execute(
            "select current_setting('timezone'), current_setting('datestyle')"
        ).fetchone()
        database.close()
    assert found == ("UTC", "ISO, DMY")


def test_the_second_client_shares_the_server_at_once_and_outlives_the_first(project: Path) -> None:
    first = EmbeddedPostgres.attach(project, ENVIRON)
    pid = running_pid(project)
    took: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        second = EmbeddedPostgres.attach(project, ENVIRON)
        took.append(time.perf_counter() - began)
        first.close()
        first.close()
        first = second
    assert min(took) < 0.06
    assert watcher_waits_or_server_ends(project, pid) == "the watcher waits"
    assert running_pid(project) == pid
    first.close()
    assert until(lambda: not alive(pid))


def test_without_the_client_lock_the_server_ends_under_a_live_client(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = EmbeddedPostgres.attach(project, ENVIRON)
    pid = running_pid(project)
    monkeypatch.setattr(attachment, "join", lambda control, _: os.open(control / "clients", os.O_RDWR))
    with EmbeddedPostgres.attach(project, ENVIRON):
        first.close()
        assert watcher_waits_or_server_ends(project, pid) == "the server ends"


def test_six_commands_at_once_on_a_new_project_share_one_server(new_project: Path, client: StartClient) -> None:
    clients = [client(new_project) for _ in range(6)]
    assert len({each.server_pid() for each in clients}) == 1
    for each in clients:
        each.leave()
        assert each.process.returncode == 0


def test_a_killed_client_leaves_no_server_behind(project: Path, client: StartClient) -> None:
    only = client(project)
    pid = only.server_pid()
    only.kill()
    assert until(lambda: not alive(pid))


@pytest.mark.parametrize("moment", ["data.new/base", "data/postmaster.pid"])
def test_a_client_killed_while_it_starts_the_server_leaves_nothing_that_blocks_the_next(
    new_project: Path, client: StartClient, moment: str
) -> None:
    first = client(new_project)
    assert until(lambda: read_place(new_project) is not None and (placed(new_project).home / moment).exists())
    first.kill()
    with EmbeddedPostgres.attach(new_project, ENVIRON) as server, psycopg.connect(server.dsn) as line:
        assert line.execute("select 1").fetchone() == (1,)


def test_a_killed_server_is_started_again_with_all_its_rows(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server, psycopg.connect(server.dsn) as idle:
        add_row(server)
        pid = running_pid(project)
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: not alive(pid))
        with EmbeddedPostgres.attach(project, ENVIRON) as again:
            assert running_pid(project) != pid
            assert rows(again) == 1
        idle.close()


def test_a_killed_watcher_is_replaced_by_the_next_client(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON):
        pid = running_pid(project)
        watcher_pid = poll(lambda: waiting_watcher(project), 20)
        assert watcher_pid is not None
        os.kill(watcher_pid, signal.SIGKILL)
        watcher = control_folder(project) / "watcher"
        assert until(lambda: is_free(watcher))
        with EmbeddedPostgres.attach(project, ENVIRON):
            assert not is_free(watcher)
    assert until(lambda: not alive(pid))


def test_a_stranger_with_the_pid_of_a_dead_server_is_unharmed(project: Path) -> None:
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        add_row(server)
        pid_file = placed(project).data / "postmaster.pid"
        stale = pid_file.read_text().splitlines()
        for pid in processes(int(stale[0])):
            os.kill(pid, signal.SIGKILL)
    assert until(lambda: all_gone(project))
    account = placed(project).account
    other = os.geteuid() == 0
    with subprocess.Popen(["sleep", "60"], user=account.uid if other else None) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *stale[1:]]) + "\n")
        assert EmbeddedPostgres.inspect(project, ENVIRON).running_pid is None
        with EmbeddedPostgres.attach(project, ENVIRON) as server:
            assert rows(server) == 1
        assert until(lambda: all_gone(project))
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("careful", [True, False])
def test_only_a_server_of_this_data_directory_is_ever_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, careful: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "_RESIGNED_SECONDS", 0.2)
    if not careful:
        monkeypatch.setattr(watch, "is_server", lambda pid, data: True)
    held, clients = try_lock(tmp_path / "server.lock"), try_lock(tmp_path / "clients")
    assert held is not None
    assert clients is not None
    server = os.open(tmp_path / "server.lock", os.O_RDWR)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background ignores it
    with subprocess.Popen(["sleep", "60"]) as stranger:
        signal.signal(signal.SIGINT, before)
        (tmp_path / "PG_VERSION").touch()
        (tmp_path / "postmaster.pid").write_text(f"{stranger.pid}\n{tmp_path}\n")
        watch.watch(clients, server)
        if careful:
            assert stranger.poll() is None
        else:
            assert stranger.wait() == -signal.SIGINT
        stranger.kill()
    for handle in (held, clients, server):
        os.close(handle)


@pytest.mark.parametrize("name", ["my project, it's «ök» \\ 100%", "x" * 90 + "/" + "y" * 90])
def test_any_path_will_do(make_project: Callable[[str], Path], name: str) -> None:
    project = make_project(name)
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        with psycopg.connect(server.dsn) as line:
            line.execute("create table seen as select 1")
        assert placed(project).home.is_relative_to(project)
        assert stat.S_IMODE(placed(project).run.stat().st_mode) == 0o700
    assert until(lambda: all_gone(project))
    with EmbeddedPostgres.attach(project, ENVIRON) as server:
        assert rows(server) == 1


def test_a_start_that_fails_quotes_the_log_and_holds_no_lock(project: Path) -> None:
    settings = placed(project).data / "postgresql.auto.conf"
    good = settings.read_text()
    settings.write_text(good + "no_such_setting = 1\n")
    with pytest.raises(StateError, match="no_such_setting"):
        EmbeddedPostgres.attach(project, ENVIRON)
    settings.write_text(good)
    with EmbeddedPostgres.attach(project, ENVIRON):
        assert running_pid(project)


def test_a_database_of_another_version_is_refused(project: Path) -> None:
    version = placed(project).data / "PG_VERSION"
    real = version.read_text()
    version.write_text("13\n")
    with pytest.raises(StateError, match="made by PostgreSQL 13"):
        EmbeddedPostgres.attach(project, ENVIRON)
    version.write_text(real)


def test_an_inspection_finds_the_server_and_makes_nothing(project: Path, tmp_path: Path) -> None:
    before = EmbeddedPostgres.inspect(tmp_path, ENVIRON)
    assert before.binaries is not None
    assert (before.binaries / "postgres").exists()
    assert (before.home, before.log, before.running_pid, before.problems) == (None, None, None, ())
    assert list(tmp_path.iterdir()) == []
    with EmbeddedPostgres.attach(project, ENVIRON) as server, psycopg.connect(server.dsn) as line:
        during = EmbeddedPostgres.inspect(project, ENVIRON)
        assert during.running_pid is not None
        assert line.execute("show server_version").fetchone() == (during.version,)
        assert during.log is not None
        assert "ready to accept connections" in during.log.read_text()


def test_on_windows_a_server_must_be_given() -> None:
    with pytest.raises(StateError, match="Windows") as caught:
        refuse_platform("nt")
    assert "state:" in str(caught.value.hint)
