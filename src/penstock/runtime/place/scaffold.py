"""What does a new project start with?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from penstock.errors import UsageError

PROJECT_FILE = "penstock.yml"
_PLACEHOLDER_NAME = b"name: my_project"
_ALREADY_FINE = frozenset({".git"})


@dataclass(frozen=True, slots=True)
class Created:
    """A new project: its folder, the files written, and the commands to type next."""

    directory: Path
    files: tuple[str, ...]
    next: tuple[str, str]


def create(directory: Path, demo: bool) -> Created:
    """Write a project into `directory`; with `demo`, the beacon project and its landing data."""
    contents = dict(_contents("demo" if demo else "starter", directory))
    _refuse_to_overwrite(directory, contents, demo)
    try:
        # The project file comes last: without it an interrupted call can simply be repeated.
        for name in sorted(contents, key=lambda name: (name == PROJECT_FILE, name)):
            if name == PROJECT_FILE and demo:
                from penstock.runtime.place.demo import generate

                generate(directory)
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[name])
    except OSError as error:
        raise UsageError(f"cannot write the project to {directory}: {error.strerror or error}") from error
    return Created(directory, tuple(sorted(contents)), _next_commands(directory, demo))


def _contents(kind: str, directory: Path) -> Iterator[tuple[str, bytes]]:
    for name, asset in _walk(files("penstock.runtime") / "assets" / kind):
        # Stored without its dot, so that it does not speak for this repository too.
        target = ".gitignore" if name == "gitignore" else name
        text = asset.read_bytes()
        if name == PROJECT_FILE:
            text = text.replace(_PLACEHOLDER_NAME, f"name: {_project_name(directory)}".encode())
        yield target, text


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def _project_name(directory: Path) -> str:
    """The folder's name as a plain word; YAML would read `true` or `1e5` as something else."""
    word = re.sub(r"[^a-z0-9]+", "_", directory.resolve().name.lower()).strip("_")
    return word if re.match("[a-z]", word) and word not in {"true", "false", "null"} else f"project_{word}".rstrip("_")


def _refuse_to_overwrite(directory: Path, contents: dict[str, bytes], demo: bool) -> None:
    elsewhere = "choose another directory, or empty this one first"
    if not directory.exists():
        return
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", hint="choose another directory")
    if (directory / PROJECT_FILE).exists():
        raise UsageError(f"{directory} already holds a project ({PROJECT_FILE})", hint=elsewhere)
    foreign = sorted(_foreign(directory, contents, demo))
    if foreign:
        rest = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise UsageError(f"{directory} is not empty: it holds {', '.join(foreign[:3])}{rest}", hint=elsewhere)


def _foreign(directory: Path, contents: dict[str, bytes], demo: bool) -> Iterator[str]:
    """What stands in `directory` and is not left over from an interrupted `create`."""
    fine = _ALREADY_FINE
    if demo and _is_ours(directory / "README.md", "README.md", contents):
        fine = fine | {"landing"}  # the data are written after the README
    for entry in directory.iterdir():
        if entry.name in fine:
            continue
        for path in entry.rglob("*") if entry.is_dir() else (entry,):
            name = path.relative_to(directory).as_posix()
            if not path.is_dir() and not _is_ours(path, name, contents):
                yield name


def _is_ours(path: Path, name: str, contents: dict[str, bytes]) -> bool:
    return path.is_file() and contents.get(name) == path.read_bytes()


def _next_commands(directory: Path, demo: bool) -> tuple[str, str]:
    enter = "" if directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    return (f"{enter}penstock run", "penstock status") if demo else (f"{enter}penstock validate", "penstock run")
