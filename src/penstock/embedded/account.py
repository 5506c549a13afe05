"""As whom does the server run? PostgreSQL refuses root."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import StateError

SHARED = ("nobody", "daemon")
"""Accounts that any other program may run as, too: better than nothing."""
UNUSED = (range(1_879_048_192, 2_147_352_576), range(60_514, 61_184))
"""Numbers that neither distributions nor containers give out; a container often has none beyond 65535."""

# Nothing of the caller's environment reaches the server: PGPORT, PGDATA or a locale would change what it does.
_SERVER_ENVIRON = {"PATH": "/usr/bin:/bin", "LANG": "C", "TZ": "UTC", "HOME": "/"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program said, or why it could not be run."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group id of every PostgreSQL process of one project."""

    uid: int
    gid: int

    def run(
        self, argv: Sequence[str], *, keep: Sequence[int] = (), output: int = subprocess.PIPE
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account, outside of the caller's session, with only the descriptors in `keep`."""
        other = os.geteuid() != self.uid
        return subprocess.run(
            argv,
            user=self.uid if other else None,
            group=self.gid if other else None,
            extra_groups=[] if other else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=keep,
            cwd="/",
            env=_SERVER_ENVIRON,
            start_new_session=True,
            text=True,
            errors="replace",
            check=False,
        )

    def attempt(self, argv: Sequence[str]) -> Outcome:
        """Whether this account can run the program: never judged by mode bits, always tried."""
        try:
            done = self.run(argv)
        except (OSError, ValueError, OverflowError, subprocess.SubprocessError) as error:
            return Outcome(False, str(error))
        return Outcome(done.returncode == 0, done.stdout.strip() or f"exit status {done.returncode}")

    @property
    def has_entry(self) -> bool:
        """Whether the system knows a name for it; initdb does not run without."""
        return entry(str(self.uid)) is not None

    @property
    def shared(self) -> bool:
        """Whether programs that have nothing to do with this project may run as this account."""
        return any(user is not None and user.pw_uid == self.uid for user in map(entry, SHARED))


def described(account: Account) -> str:
    """For people who want to know as whom it runs."""
    user = entry(str(account.uid))
    if account.shared and os.geteuid() == 0:
        return f"{user.pw_name if user else account.uid}, which other programs may run as, too"
    return user.pw_name if user else f"uid {account.uid}, which nothing else runs as"


def server_accounts(environ: Mapping[str, str], uid: int, gid: int, ident: str) -> Iterator[Account]:
    """The caller itself; for root the one that it names, else one that nobody else runs as, else one that others share.

    The best comes first. Which of them can be had here, only trying tells.
    """
    if uid != 0:
        yield Account(uid, gid)
        return
    if wanted := environ.get("PENSTOCK_PG_USER"):
        yield _named(wanted)
        return
    for numbers in UNUSED:
        if (number := unused(numbers, ident)) is not None:
            yield Account(number, number)
    for user in map(entry, SHARED):
        if user is not None and user.pw_uid != 0:
            yield Account(user.pw_uid, user.pw_gid)


def usable_accounts(environ: Mapping[str, str], uid: int, gid: int, ident: str) -> Iterator[Account]:
    """Those that programs can be run as, and files given to; an error when there is none."""
    against: list[str] = []
    usable = False
    for account in server_accounts(environ, uid, gid, ident):
        if (reason := reason_against_account(account)) is None:
            usable = True
            yield account
        else:
            against.append(reason)
    if not usable:
        raise StateError(
            f"PostgreSQL does not run as root, and root cannot run it as another account here: {'; '.join(against)}",
            hint="allow CAP_SETUID, CAP_SETGID and CAP_CHOWN here, or give a PostgreSQL server as `state:`",
        )


def reason_against_account(account: Account) -> str | None:
    """Why nothing can be run as this account, or given to it; None when it can."""
    if os.geteuid() == account.uid:
        return None
    tried = account.attempt(["/bin/sh", "-c", ":"])
    if not tried.ok:
        return f"uid {account.uid}: {tried.text}"
    try:
        with tempfile.TemporaryFile() as file:
            os.fchown(file.fileno(), account.uid, account.gid)
    except OSError as error:
        return f"uid {account.uid}: {error}"
    return None


def unused(numbers: range, ident: str) -> int | None:
    """A number that is no user's and no group's and that no process runs as; for one `ident` mostly the same."""
    busy = _running()
    first = zlib.crc32(ident.encode()) % len(numbers)
    for step in range(min(len(numbers), 100)):
        number = numbers[(first + step) % len(numbers)]
        if number not in busy and entry(str(number)) is None and not _is_group(number):
            return number
    return None


def entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        return None


def _named(wanted: str) -> Account:
    user = entry(wanted)
    if user is not None and user.pw_uid != 0:
        return Account(user.pw_uid, user.pw_gid)
    if user is None and wanted.isdigit() and 0 < int(wanted) < 2**32 - 1:
        return Account(int(wanted), int(wanted))
    raise StateError(
        f"PostgreSQL does not run as root, and PENSTOCK_PG_USER={wanted} is no unprivileged account",
        hint="set PENSTOCK_PG_USER to an account that is not root, or leave it to Penstock to choose one",
    )


def _is_group(number: int) -> bool:
    try:
        grp.getgrgid(number)
    except (KeyError, OverflowError):
        return False
    return True


def _running() -> frozenset[int]:
    """The user ids of all processes that can be seen."""
    uids: set[int] = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            uid_line = next(
                (line for line in status.read_text(errors="replace").splitlines() if line.startswith("Uid:")), "Uid:"
            )
            uids.update(map(int, uid_line.split()[1:]))
    return frozenset(uids)
