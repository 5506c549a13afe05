"""Where does the database of this project live?"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.embedded.account import Account, usable_accounts
from penstock.embedded.binaries import MACHINE_FOLDER
from penstock.embedded.filesystem import is_network
from penstock.embedded.folders import make_folders, unmake_folders, write_private
from penstock.errors import StateError

SOCKET_NAME = ".s.PGSQL.5432"
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 104 to 108 bytes
_TEMPORARY = "/tmp"  # noqa: S108 (only for folders that mkdtemp makes)
# In a list of socket directories and in a connection string other characters have meanings of their own.
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """The one place of a project's database, chosen once and then only read."""

    ident: str
    project: Path
    home: Path
    run: Path
    account: Account
    initialised: bool

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def configuration(self) -> Path:
        return self.home / "conf"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def server_lock(self) -> Path:
        """Held by every PostgreSQL process of this place, so by nobody exactly when all are gone."""
        return self.home / "server.lock"

    @property
    def socket(self) -> Path:
        return self.run / SOCKET_NAME


def control_folder(project: Path) -> Path:
    """Locks, password and `place.json`: always in the project, always the caller's."""
    return project / ".penstock" / "pg"


def read_place(project: Path) -> Place | None:
    """What was chosen before; None when this project never had a database."""
    file = control_folder(project) / "place.json"
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        home = project / stored["home"]
        return Place(
            ident=stored["id"],
            project=Path(stored["project"]),
            home=home,
            run=Path(stored["run"]) if stored["run"] else home / "run",
            account=Account(stored["uid"], stored["gid"]),
            initialised=stored["initialised"],
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{file} is damaged ({error!r})", hint=f"restore it, or {start_empty(project)}") from error


def write_place(project: Path, place: Place) -> None:
    """Paths inside the project are stored relative to it: a moved project still finds its database."""
    inside = place.home.is_relative_to(project)
    stored = {
        "id": place.ident,
        "project": str(project),
        "home": str(place.home.relative_to(project) if inside else place.home),
        "run": None if place.run == place.home / "run" else str(place.run),
        "uid": place.account.uid,
        "gid": place.account.gid,
        "initialised": place.initialised,
    }
    write_private(control_folder(project) / "place.json", json.dumps(stored, indent=1) + "\n")


def choose_place(project: Path, environ: Mapping[str, str]) -> Place:
    """The place as stored, brought up to date after a move; a new one only when none was ever chosen."""
    stored = read_place(project)
    place = stored or choose(project, environ, uid=os.geteuid(), gid=os.getegid())
    refuse(project, place)
    place = replace(place, project=project, run=_socket_folder(place, environ))
    if place != stored:
        write_place(project, place)
    return place


def refuse(project: Path, place: Place) -> None:
    """A database that is a copy, is lost or belongs to another user is an error, never a reason to begin anew."""
    if is_copy(project, place):
        raise StateError(
            f"{project} is a copy of {place.project}, whose database it must not use",
            hint=f"work in {place.project}, or {start_empty(project)}",
        )
    if place.initialised and not (place.data / "PG_VERSION").exists():
        raise StateError(
            f"the database of {project} is gone: {place.data} was its place",
            hint=f"restore that folder, or {start_empty(project)}",
        )
    if os.geteuid() not in (0, place.account.uid):
        raise StateError(
            f"the database of {project} belongs to uid {place.account.uid}, not to uid {os.geteuid()}",
            hint="run this command as that user",
        )
    if not place.initialised and (reason := reason_against_home(place.home, place.account)):
        raise StateError(f"no database can be made in {place.home}: {reason}", hint=start_empty(project))


def is_copy(project: Path, place: Place) -> bool:
    """Whether the folder this place was chosen for is still there, is another one, and still has this database."""
    if place.project == project:
        return False
    try:
        original = json.loads((control_folder(place.project) / "place.json").read_text(encoding="utf-8"))
        return bool(original["id"] == place.ident) and not place.project.samefile(project)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def start_empty(project: Path) -> str:
    folders = (control_folder(project), project / ".penstock" / "pgdata")
    return "start with an empty database: rm -rf " + " ".join(shlex.quote(str(folder)) for folder in folders)


def candidates(project: Path, environ: Mapping[str, str], ident: str, uid: int) -> Iterator[Path]:
    """Where the database may live, best first."""
    if environ.get("PENSTOCK_PG_HOME"):
        yield project / environ["PENSTOCK_PG_HOME"] / ident
    if uid == 0:
        yield project / ".penstock" / "pgdata"
        yield MACHINE_FOLDER / "pg" / ident
        return
    yield control_folder(project)
    if environ.get("XDG_STATE_HOME"):
        yield project / environ["XDG_STATE_HOME"] / "penstock" / "pg" / ident
    elif environ.get("HOME"):
        yield Path(environ["HOME"], ".local", "state", "penstock", "pg", ident)


def choose(project: Path, environ: Mapping[str, str], *, uid: int, gid: int) -> Place:
    """The first candidate that works when tried as the server's account."""
    ident = secrets.token_hex(6)
    homes = tuple(candidates(project, environ, ident, uid))
    for home in homes:
        if (home / "data").exists():
            raise StateError(
                f"{home / 'data'} holds a database, but {control_folder(project) / 'place.json'} is gone",
                hint=f"restore that file and `secret` beside it, or {start_empty(project)}",
            )
    against: list[str] = []
    for account in usable_accounts(environ, uid, gid, ident):
        for home in homes:
            reason = reason_against_home(home, account)
            if reason is None:
                return Place(ident, project, home, home / "run", account, initialised=False)
            against.append(f"{home}: {reason}")
    raise StateError(
        f"no place for the embedded PostgreSQL of {project}: {'; '.join(against)}",
        hint="set PENSTOCK_PG_HOME to a local folder, or give a PostgreSQL server as `state:`",
    )


def reason_against_home(home: Path, account: Account) -> str | None:
    """Why the database of this account cannot live there, found by trying; None when it can.

    What root makes stays root's, and others only pass through: the server owns folders inside, not what stands beside.
    """
    created: tuple[Path, ...] = ()
    try:
        created = make_folders(home.parent, 0o755 if os.geteuid() == 0 else 0o700)
        created += make_folders(home, 0o700)
        if os.geteuid() == home.stat().st_uid == 0:
            pass_through(home, account)
        reason = reason_against(home / "run", account)
    except OSError as error:
        reason = str(error)
    if reason is not None:
        unmake_folders(created)
    return reason


def pass_through(home: Path, account: Account) -> None:
    os.chown(home, 0, account.gid, follow_symlinks=False)
    home.chmod(0o710)


def reason_against(home: Path, account: Account) -> str | None:
    """Why the account cannot keep its files in this folder, found by trying; None when it can."""
    created: tuple[Path, ...] = ()
    try:
        created = _own_folder(home, account)
        if is_network(home):
            reason: str | None = "it is on a network file system"
        elif home.stat().st_uid != account.uid or home.stat().st_mode & 0o077:
            reason = "the file system keeps no owner and mode, or the folder is not private"
        else:
            probe = 'cd "$1" && mkdir .probe && rmdir .probe'
            tried = account.attempt(["/bin/sh", "-c", probe, "sh", str(home)])
            reason = None if tried.ok else f"uid {account.uid} cannot use it ({tried.text})"
    except OSError as error:
        reason = str(error)
    if reason is not None:
        unmake_folders(created)
    return reason


def _own_folder(folder: Path, account: Account) -> tuple[Path, ...]:
    created = make_folders(folder, 0o700)
    if created and os.geteuid() == 0:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    return created


def _socket_folder(place: Place, environ: Mapping[str, str]) -> Path:
    """The folder of the socket: beside the data when the path allows it, else a private one of a short name."""
    if _fits(place.run) and reason_against(place.run, place.account) is None:
        return place.run
    for folder in (environ.get("TMPDIR") or _TEMPORARY, _TEMPORARY):
        if _fits(Path(folder, "penstock-01234567")):
            private = Path(tempfile.mkdtemp(prefix="penstock-", dir=folder))
            os.chown(private, place.account.uid, place.account.gid)
            if reason_against(private, place.account) is None:
                return private
            private.rmdir()
    raise StateError(
        f"no folder for the socket of {place.home}", hint="set TMPDIR to a folder with a short, plain path"
    )


def _fits(folder: Path) -> bool:
    path = str(folder / SOCKET_NAME)
    return len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH and _PLAIN.fullmatch(path) is not None
