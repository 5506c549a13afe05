"""As whom does the server run? PostgreSQL refuses root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import StateError

_UNPRIVILEGED = ("nobody", "daemon")

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
        except (OSError, subprocess.SubprocessError) as error:
            return Outcome(False, str(error))
        return Outcome(done.returncode == 0, done.stdout.strip() or f"exit status {done.returncode}")


def server_account(environ: Mapping[str, str], uid: int, gid: int) -> Account:
    """The caller itself, or an unprivileged account when the caller is root."""
    if uid != 0:
        return Account(uid, gid)
    wanted = environ.get("PENSTOCK_PG_USER")
    for name in (wanted,) if wanted else _UNPRIVILEGED:
        entry = _entry(name)
        if entry is not None and entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid)
    raise StateError(
        f"PostgreSQL does not run as root, and {wanted or ' and '.join(_UNPRIVILEGED)} is no unprivileged account",
        hint="set PENSTOCK_PG_USER to an account that is not root, or give a PostgreSQL server as `state:`",
    )


def _entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        return None
