"""How is a file under a table's root opened?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.errors import EngineError, SourceError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Storage = Mapping[str, str]
"""Options of the object store, as delta-rs names them."""
_PATIENCE = {"max_retries": "2", "retry_timeout": "20s"}
"""A store that falls silent while a file is opened holds Python's lock, so it is not tried for long."""


def local_path(location: str) -> str | None:
    """The path of a location on this machine; None when it lies elsewhere."""
    if location.startswith("file:"):
        return unquote(urlsplit(location).path)
    return None if "://" in location else location


def is_absolute(path: str) -> bool:
    return path.startswith("/") or "://" in path or path.startswith("file:")


def place(location: str, path: str, storage: Storage | None) -> tuple[FileSystem, str]:
    """The file system that holds `path` of the table at `location`, and the file's path in it."""
    from pyarrow.fs import LocalFileSystem

    if is_absolute(path):
        location, _, path = path.rpartition("/")
    local = local_path(location)
    if local is not None:
        return LocalFileSystem(), f"{local.rstrip('/')}/{path}"
    return _client(location, tuple(sorted((storage or {}).items()))), path


@lru_cache(maxsize=256)
def _client(location: str, storage: tuple[tuple[str, str], ...]) -> FileSystem:
    """One client per table: it keeps its connections, and any thread may use it."""
    from pyarrow.fs import PyFileSystem

    from penstock.engine.log.store_client import StoreClient

    return PyFileSystem(StoreClient(location, {**_PATIENCE, **dict(storage)}))


@contextmanager
def reading(location: str, path: str) -> Iterator[None]:
    """Whatever goes wrong while one of our own Parquet files is read is the store's fault, or the file's."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:  # most of Arrow's errors are no OSError
        raise EngineError(
            f"cannot read {path} of {location}: {error}", hint="check that the file is there and whole"
        ) from error


def read_text(location: str, path: str, storage: Storage | None) -> str | None:
    """The text of a small file under the table's root; None when there is no such file."""
    try:
        filesystem, inside = place(location, path, storage)
        with filesystem.open_input_file(inside) as file:
            return bytes(file.read()).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        said = f"cannot read {path} of {location}: {first_line(error)}"
        raise SourceError(said, hint="the store may answer again") from error


def first_line(error: BaseException) -> str:
    """What went wrong in one line: delta-rs appends stacks, and the addresses of requests, which may hold secrets."""
    first, *rest = str(error).strip().split("\n")
    causes = [line.partition("↳")[2].removeprefix("\x1b[0m").strip() for line in rest if "↳" in line]
    kept = [cause for cause in causes if cause and "://" not in cause and not cause.startswith("<")]
    return ": ".join([first, *kept]) or type(error).__name__


def options(storage: Storage | None) -> dict[str, str] | None:
    return dict(storage) if storage else None
