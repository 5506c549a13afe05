"""How are folders and small files made, so that a crash or a loose umask does no harm?"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.embedded.locks import keep_owner


def make_folders(folder: Path, mode: int) -> tuple[Path, ...]:
    """Make what is missing, outermost first, and return it; what exists keeps its mode."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    created: list[Path] = []
    for path in reversed(missing):
        try:
            path.mkdir()
        except FileExistsError:  # another process was faster
            continue
        path.chmod(mode)  # the umask must not have a say
        created.append(path)
    return tuple(created)


def unmake_folders(created: tuple[Path, ...]) -> None:
    """Remove the folders that `make_folders` created, as far as they are still empty."""
    for path in reversed(created):
        try:
            path.rmdir()
        except OSError:
            return


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read: the old text or the new one, never a part."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        keep_owner(handle, path.parent)
        file.write(text)
        file.flush()
        os.fsync(handle)
    unfinished.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_all(folder: Path, old: int, uid: int, gid: int) -> None:
    """What `old` owns there becomes another's; what is not its own, or only linked from there, stays as it is."""
    if not folder.exists():
        return
    for _, folders, files, handle in os.fwalk(folder):
        for name in (os.curdir, *folders, *files):
            if os.stat(name, dir_fd=handle, follow_symlinks=False).st_uid == old:
                os.chown(name, uid, gid, dir_fd=handle, follow_symlinks=False)
