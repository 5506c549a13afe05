"""Who gets into the server, and how is it set up?

These files are written anew before every start, by whoever starts it. Called by root they stay root's: the server reads
them and cannot change who gets in, and neither can anybody who gets hold of its account.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.embedded.binaries import Programs
from penstock.embedded.folders import make_folders, write_private
from penstock.embedded.place import Place

PORT = 5432
_FILES = {
    "postgresql.conf": "# Everything is set on the command line of the server.\n",
    "pg_hba.conf": "# Only at the socket, only with the password.\nlocal all all scram-sha-256\n",
    "pg_ident.conf": "# Nobody has another name here.\n",
}
# On the command line, so that nothing in the data directory can say otherwise.
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "32MB",
    "max_connections": "300",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum_naptime": "15s",
    "idle_in_transaction_session_timeout": "60s",
    "log_line_prefix": "%m [%p] %a ",
}


def configure(place: Place) -> None:
    """Write what the server reads, owned like the folder that it is in; the server's account may read it."""
    folder, owner = place.configuration, place.home.stat().st_uid
    others = 0o050 if owner != place.account.uid else 0
    make_folders(folder, 0o700)
    _give(folder, owner, place.account.gid, 0o700 | others)
    for name, text in _FILES.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_private(file, text)
        _give(file, owner, place.account.gid, 0o600 | others & 0o040)


def _give(path: Path, uid: int, gid: int, mode: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, uid, gid, follow_symlinks=False)
    path.chmod(mode)


def command(place: Place, programs: Programs) -> list[str]:
    """What starts the server."""
    settings = _SETTINGS | {
        "config_file": str(place.configuration / "postgresql.conf"),
        "hba_file": str(place.configuration / "pg_hba.conf"),
        "ident_file": str(place.configuration / "pg_ident.conf"),
    }
    if programs.major >= 17:
        settings["allow_alter_system"] = "off"
    if programs.major >= 18:
        settings["io_method"] = "sync"  # no extra worker processes for a database this small
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    server = str(programs.folder / "postgres")
    return [server, "-D", str(place.data), "-k", str(place.run), "-p", str(PORT), *options]
