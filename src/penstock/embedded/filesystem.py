"""On what kind of file system is a folder?"""

from __future__ import annotations

import os
import re
from pathlib import Path

# PostgreSQL on these loses locks, ownership or fsync.
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "drvfs", "virtiofs", "vboxsf", "fakeowner", "osxfs", "afs", "lustre"}
    | {"fuse.sshfs", "fuse.s3fs", "fuse.grpcfuse"}
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")


def is_network(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """False also where the mounts cannot be read: then only trying tells."""
    try:
        table = mounts.read_bytes()
    except OSError:
        return False
    return file_system(os.fsencode(folder.resolve()), table) in _NETWORK


def file_system(folder: bytes, table: bytes) -> str:
    """The type of the innermost mount that holds the folder; of two on one mount point the later one counts."""
    kind, longest = b"", -1
    for line in table.splitlines():
        where, _, what = line.partition(b" - ")
        point = _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), where.split()[4])
        inside = (folder + b"/").startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= longest:
            kind, longest = what.split()[0], len(point)
    return kind.decode()
