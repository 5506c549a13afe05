"""How is an empty database made, and may these programs open the one that is there?"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from penstock.embedded.account import SHARED, Account, entry
from penstock.embedded.binaries import Programs
from penstock.embedded.folders import give_all, make_folders, sync_folder, write_private
from penstock.embedded.place import Place, control_folder, start_empty, write_place
from penstock.errors import StateError

USER = "postgres"
_TAIL_CHARACTERS = 1500
_DSN = "repair what it complains about, or give a PostgreSQL server as `state:`"


def secret_file(project: Path) -> Path:
    return control_folder(project) / "secret"


def password(project: Path) -> str:
    file = secret_file(project)
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise StateError(
            f"the password of the embedded PostgreSQL is gone: {file} does not exist",
            hint=f"restore that file, or {start_empty(project)}",
        ) from None


def make_cluster(place: Place, programs: Programs, held: int) -> Place:
    """Make the database when there is none; `data` is complete whenever it exists.

    `held` is the server's lock: initdb inherits it, so that nobody begins a second one beside an orphan.
    """
    if not place.data.exists():
        unfinished = place.home / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        word = secrets.token_urlsafe(24)
        maker = maker_account(place.account)
        make_folders(unfinished, 0o700)
        if os.geteuid() == 0:
            os.chown(unfinished, maker.uid, maker.gid)
        _initdb(maker, programs, unfinished, word, held)
        if maker != place.account:
            give_all(unfinished, maker.uid, place.account.uid, place.account.gid)
        write_private(secret_file(place.project), word + "\n")
        _sync(unfinished)
        unfinished.rename(place.data)
        sync_folder(place.home)
    if not place.initialised:
        place = replace(place, initialised=True)
        write_place(place.project, place)
    return place


def refuse_other_version(place: Place, programs: Programs) -> None:
    made_by = (place.data / "PG_VERSION").read_text(encoding="ascii").strip()
    if made_by != str(programs.major):
        raise StateError(
            f"the database in {place.data} was made by PostgreSQL {made_by}; {programs.folder} is {programs.version}",
            hint=f"set PENSTOCK_PG_BIN to the programs of PostgreSQL {made_by}, or dump and restore the database",
        )


def maker_account(account: Account) -> Account:
    """As whom initdb runs: the server's account, or for a moment a user that the system knows, in the server's group.

    Other programs of that user are not in that group: they cannot enter the folder above, nor trace the process.
    """
    if account.has_entry:
        return account
    for user in map(entry, SHARED):
        if user is not None and user.pw_uid != 0:
            return Account(user.pw_uid, account.gid)
    raise StateError(
        f"initdb does not run as uid {account.uid}, which has no name, and there is neither {' nor '.join(SHARED)}",
        hint="set PENSTOCK_PG_USER to an account with a name, or give a PostgreSQL server as `state:`",
    )


def _initdb(account: Account, programs: Programs, data: Path, word: str, held: int) -> None:
    reading, writing = os.pipe()
    try:
        if os.geteuid() == 0:
            os.fchown(reading, account.uid, account.gid)  # else /dev/fd/N cannot be opened as that uid
        os.write(writing, word.encode() + b"\n")
        os.close(writing)
        command = [str(programs.folder / "initdb"), "-D", str(data), "-U", USER, f"--pwfile=/dev/fd/{reading}"]
        done = account.run([*command, *_options(programs)], keep=(reading, held))
    except (OSError, subprocess.SubprocessError) as error:
        raise StateError(f"initdb cannot be run as uid {account.uid}: {error}", hint=_DSN) from error
    finally:
        os.close(reading)
    if done.returncode != 0:
        said = done.stdout.strip()[-_TAIL_CHARACTERS:]
        raise StateError(f"initdb could not make a database in {data.parent}:\n{said}", hint=_DSN)


def _options(programs: Programs) -> tuple[str, ...]:
    """No sync here: one for the whole file system afterwards replaces a thousand."""
    builtin = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if programs.major >= 17 else ()
    quick = ("--no-sync", "--no-instructions")
    return ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", *builtin, *quick)


def _sync(folder: Path) -> None:
    try:
        done = subprocess.run(["sync", "-f", str(folder)], capture_output=True, check=False, cwd="/")
    except OSError:
        os.sync()
    else:
        if done.returncode != 0:  # not every `sync` knows one file system
            os.sync()
