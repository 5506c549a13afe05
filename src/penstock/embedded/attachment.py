"""In which order are lock, place, database, watcher and server had, so that no crash in between does harm?

Three locks in the control folder, in the order they are taken:
`clients`   shared by every client, who writes into it how long the server is to stay after it; the watcher takes it
            exclusively to stop the server,
`starting`  by the one client that chooses the place and starts the server,
`watcher`   by the watcher, from its start to its end.
A fourth, `server.lock` beside the data, is inherited by every PostgreSQL process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from psycopg import pq
from psycopg.conninfo import make_conninfo

from penstock.embedded import watch
from penstock.embedded.account import Account, described, usable_accounts
from penstock.embedded.binaries import Programs, find, programs_for, programs_in
from penstock.embedded.cluster import USER, make_cluster, password, refuse_other_version
from penstock.embedded.configuration import PORT
from penstock.embedded.folders import make_folders
from penstock.embedded.handover import hand_over
from penstock.embedded.launch import Up, answering, ensure_watcher, launch, up_or_down
from penstock.embedded.locks import lock, locked
from penstock.embedded.place import Place, choose_place, control_folder, read_place, refuse
from penstock.embedded.server import Inspection
from penstock.errors import StateError

# Whatever libpq would otherwise take from a PG* variable, in the words that it takes for "nothing special".
_NOTHING_FROM_OUTSIDE = {
    "hostaddr": "",
    "options": "",
    "passfile": "",
    "requirepeer": "",
    "require_auth": "scram-sha-256",
    "channel_binding": "disable",
    "target_session_attrs": "any",
    "load_balance_hosts": "disable",
    "client_encoding": "UTF8",
    "application_name": "penstock",
    "connect_timeout": "10",
    "min_protocol_version": "3.0",
    "max_protocol_version": "3.0",
    "gssencmode": "disable",
    "sslmode": "disable",
    "sslnegotiation": "postgres",
    "sslcertmode": "disable",
    "sslrootcert": "",
    "ssl_min_protocol_version": "",
    "ssl_max_protocol_version": "",
}


LINGER_SECONDS = 300.0
_LONGEST_LINGER_SECONDS = 86_400.0


def attach(project: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    """The client lock, held, and the connection string of a server that answers."""
    control = _own_control_folder(project)
    clients = join(control, linger_seconds(environ))
    try:
        place = read_place(project)
        if place is not None and place.project == project and answering(place) is not None:
            ensure_watcher(place, environ)
        else:
            with locked(control / "starting"):
                place = _start(project, environ)
        return clients, _dsn(place)
    except BaseException:
        os.close(clients)
        raise


def join(control: Path, linger: float) -> int:
    """Become a client: from now on no watcher stops the server, and later not before so many seconds."""
    handle = lock(control / "clients", shared=True)
    with suppress(OSError):  # a full disk: then it goes with its last client
        os.pwrite(handle, watch.linger_note(linger), 0)
    return handle


def linger_seconds(environ: Mapping[str, str]) -> float:
    """How long the server stays after its last client: the next command need not wait for it to start."""
    setting = environ.get("PENSTOCK_PG_LINGER")
    try:
        seconds = LINGER_SECONDS if setting is None else float(setting)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_LINGER_SECONDS:
        raise StateError(
            f"PENSTOCK_PG_LINGER is {setting!r}", hint="set it to a number of seconds, up to a day; 0 stops it at once"
        )
    return seconds


def inspect(project: Path, environ: Mapping[str, str]) -> Inspection:
    problems: list[str] = []
    programs: Programs | None = None
    place: Place | None = None
    account: Account | None = None
    try:
        place = read_place(project)
        if place is not None:
            refuse(project, place)
        account = place.account if place else next(usable_accounts(environ, os.geteuid(), os.getegid(), ""))
    except (StateError, OSError) as error:
        problems.append(str(error))
    try:
        programs = programs_in(find(environ), Account(os.geteuid(), os.getegid()))
    except (StateError, OSError) as error:
        problems.append(str(error))
    return Inspection(
        binaries=programs.folder if programs else None,
        version=programs.version if programs else None,
        home=place.home if place else None,
        log=place.log if place else None,
        account=_words(account, chosen=place is not None) if account else None,
        running_pid=answering(place) if place else None,
        problems=tuple(problems),
    )


def _words(account: Account, *, chosen: bool) -> str:
    return described(account) if chosen or account.has_entry else "an unused uid"


def _start(project: Path, environ: Mapping[str, str]) -> Place:
    place = choose_place(project, environ)
    state = up_or_down(place)
    if isinstance(state, Up):
        ensure_watcher(place, environ)
        return place
    held = state.held
    try:
        place = hand_over(place, environ)
        programs = programs_for(place.account, find(environ))
        place = make_cluster(place, programs, held)
        refuse_other_version(place, programs)
        password(project)
        ensure_watcher(place, environ)  # before the server, so that a client killed from here on leaves none behind
    except BaseException:
        os.close(held)
        raise
    launch(place, programs, held)
    return place


def _own_control_folder(project: Path) -> Path:
    if not project.is_dir():
        raise StateError(f"{project} is no folder, so it has no embedded PostgreSQL")
    control = control_folder(project)
    if not make_folders(control.parent, 0o755) and control.is_symlink():
        raise StateError(f"{control} is a symbolic link", hint="replace it by a folder, or set PENSTOCK_PG_HOME")
    make_folders(control, 0o700)
    owner = control.stat().st_uid
    if os.geteuid() not in (0, owner):
        raise StateError(
            f"{control} belongs to uid {owner}, not to uid {os.geteuid()}", hint="run this command as that user"
        )
    return control


def _dsn(place: Place) -> str:
    """Every part is given, so that no PG* variable of the caller's environment leads elsewhere.

    Four variables cannot be answered here. PGSERVICE only fills in what is missing, which is nothing; PGTZ, PGDATESTYLE
    and PGGEQO are settings of a session. One that PostgreSQL does not know still makes it refuse, and name it.
    """
    known = {
        option.keyword.decode() for option in pq.Conninfo.get_defaults()
    }  # an older libpq refuses words that it does not know
    parts = {name: value for name, value in _NOTHING_FROM_OUTSIDE.items() if name in known} | {
        "host": str(place.run),
        "port": str(PORT),
        "user": USER,
        "dbname": "postgres",
        "password": password(place.project),
    }
    return make_conninfo("", **parts)
