"""How is a file under a table's root opened?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.errors import SourceError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Storage = Mapping[str, str]
"""Options of the object store, as delta-rs names them."""


def local_path(location: str) -> str | None:
    """The path of a location on this machine; None when it lies elsewhere."""
    if location.startswith("file:"):
        return unquote(urlsplit(location).path)
    return None if "://" in location else location


def is_absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path or path.startswith("file:")


def place(location: str, path: str, storage: Storage | None) -> tuple[FileSystem, str]:
    """The file system that holds `path` of the table at `location`, and the file's path in it."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import LocalFileSystem, PyFileSystem

    if is_absolute(path):
        location, _, path = path.rpartition("/")
    local = local_path(location)
    if local is not None:
        return LocalFileSystem(), f"{local.rstrip('/')}/{path}"
    return PyFileSystem(DeltaStorageHandler(location, options(storage))), path


def read_text(location: str, path: str, storage: Storage | None) -> str | None:
    """The text of a small file under the table's root; None when there is no such file."""
    try:
        filesystem, inside = place(location, path, storage)
        with filesystem.open_input_file(inside) as file:
            return bytes(file.read()).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"cannot read {path} of {location}: {error}", hint="the store may answer again") from error


def options(storage: Storage | None) -> dict[str, str] | None:
    return dict(storage) if storage else None
