"""Which files make up a project, and what is in them?"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from penstock.errors import UsageError
from penstock.project.keys.settings import CONFIG, KINDS, Kind, Settings
from penstock.project.reading.documents import Node, Table, read_document
from penstock.project.reading.limits import MAX_FILE_BYTES, MAX_SCRIPT_BYTES, cut
from penstock.project.reading.problems import Problems, Where

_MODEL_ENDINGS = frozenset({".sql", ".yml", ".yaml", ".py"})
_SCRIPTS = "scripts"
_FENCE = "---"
_KEY = re.compile(r"\w+:(\s|$)")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model file, cut into its keys and its query."""

    file: str
    kind: Kind
    keys: Table
    body: str | None
    """The query; None when the file has none, as `.yml` files."""
    body_line: int
    readable: bool
    """False: its keys could not be read, which is already reported."""

    @property
    def ending(self) -> str:
        return PurePosixPath(self.file).suffix.lower()

    @property
    def stem(self) -> str:
        return PurePosixPath(self.file).stem


def find_root(start: Path) -> Path:
    """The nearest folder, from `start` upwards, that holds `penstock.yml`."""
    here = start.resolve()
    for folder in (here, *here.parents):
        if (folder / CONFIG).is_file():
            return folder
    raise UsageError(f"there is no {CONFIG} in {here} or above it", hint="run penstock init DIR, or give --project DIR")


def project_root(start: Path, config: Path | None) -> Path:
    """The folder of the project: beside the given file, else found by walking up."""
    return config.resolve().parent if config is not None else find_root(start)


def collect(root: Path, settings: Settings, problems: Problems) -> dict[str, bytes]:
    """The model files and scripts of the project, by their path as the settings spell it."""
    contents: dict[str, bytes] = {}
    inside = root.resolve()
    for kind in KINDS:
        for path in settings.paths[kind]:
            real, where = (root / path).resolve(), settings.configured_paths.get(path)
            if where is not None and not real.is_relative_to(inside):
                said = f"paths.{kind}: {cut(path)!r} lies outside of the project"
                problems.add(where, said, "move the files into the project's folder")
                continue
            if where is not None and not real.exists():
                problems.add(where, f"paths.{kind}: there is no {cut(path)!r}")
            for name, file in _walk(root, path, inside, problems):
                if PurePosixPath(name).suffix.lower() in _MODEL_ENDINGS:
                    _take(name, file, MAX_FILE_BYTES, contents, problems)
    for name, file in _walk(root, _SCRIPTS, inside, problems):
        _take(name, file, MAX_SCRIPT_BYTES, contents, problems)
    return dict(sorted(contents.items()))


def content(path: Path, most: int) -> bytes:
    """What is in a file, unless that is more than `most` bytes: a ValueError, before anything of it is read."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if status.st_size > most:
        raise ValueError(f"the file has {status.st_size} bytes; {most} are the most")
    return path.read_bytes()


def _take(name: str, file: Path, most: int, contents: dict[str, bytes], problems: Problems) -> None:
    try:
        contents[name] = content(file, most)
    except ValueError as error:
        problems.add(Where(name, 1), str(error))


def model_files(files: Mapping[str, bytes], settings: Settings, problems: Problems) -> Iterator[ModelFile]:
    """Every model file, read; a file that two kinds of path reach is an error."""
    for name, content in sorted(files.items()):
        kinds = [kind for kind in KINDS if any(_under(name, path) for path in settings.paths[kind])]
        if not kinds or PurePosixPath(name).suffix.lower() not in _MODEL_ENDINGS:
            continue
        if len(kinds) > 1:
            problems.add(Where(name, 1), "it lies under the paths of external and of transformation models; keep one")
            continue
        try:
            text = content.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            problems.add(Where(name, line), "the file is not UTF-8 text")
            continue
        yield _read(name, kinds[0], text, problems)


def _walk(root: Path, path: str, inside: Path, problems: Problems) -> Iterator[tuple[str, Path]]:
    """Files under `path` with their names in the bundle. Links are followed once, and never out of the project."""
    top, prefix = root / path, PurePosixPath(_normal(path))

    def is_allowed(name: PurePosixPath, real: Path) -> bool:
        allowed = real.is_relative_to(inside)
        if not allowed:
            problems.add(Where(str(name), 1), f"it is a link to {real}, outside of the project")
        elif not real.exists():
            problems.add(Where(str(name), 1), f"it is a link to {real}, which is not there")
        return allowed and real.exists()

    if top.is_file() and is_allowed(prefix, top.resolve()):
        yield str(prefix), top.resolve()
    seen: set[Path] = set()
    for folder, folders, names in os.walk(top, followlinks=True):
        here, below = Path(folder).resolve(), prefix / Path(folder).relative_to(top).as_posix()
        if here in seen or not is_allowed(below, here):
            folders.clear()
            continue
        seen.add(here)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(name for name in names if not name.startswith(".")):
            file = here / name
            # only a link can lead elsewhere, and looking behind each name would cost more than reading the file
            if not file.is_symlink():
                yield f"{below}/{name}" if str(below) != "." else name, file
            elif is_allowed(below / name, file.resolve()):
                yield str(below / name), file.resolve()


def _normal(path: str) -> str:
    return PurePosixPath(os.path.normpath(path)).as_posix()


def _under(name: str, path: str) -> bool:
    top = _normal(path)
    return name == top or PurePosixPath(name).is_relative_to(top) or top == "."


def _read(file: str, kind: Kind, text: str, problems: Problems) -> ModelFile:
    ending = PurePosixPath(file).suffix.lower()
    if ending == ".sql":
        return _read_sql(file, kind, text, problems)
    if ending == ".py":
        return _read_python(file, kind, text)
    keys = _keys(text, file, 1, problems)
    return ModelFile(file, kind, keys or _nothing(file), None, 1, keys is not None)


def _read_sql(file: str, kind: Kind, text: str, problems: Problems) -> ModelFile:
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if not _is_comment(line)), len(lines))
    if start == len(lines) or lines[start].rstrip() != _FENCE:
        if _KEY.match("".join(lines[start : start + 1])) and _FENCE in map(str.rstrip, lines):
            problems.add(
                Where(file, start + 1), f"the front matter has no opening {_FENCE}: put it above the first key"
            )
            return ModelFile(file, kind, _nothing(file), None, 1, False)
        return ModelFile(file, kind, _nothing(file), text, 1, True)
    end = next((n for n in range(start + 1, len(lines)) if lines[n].rstrip() == _FENCE), None)
    if end is None:
        problems.add(Where(file, start + 1), f"the front matter has no closing {_FENCE}")
        return ModelFile(file, kind, _nothing(file), None, 1, False)
    keys = _keys("\n".join(lines[start + 1 : end]), file, start + 2, problems)
    return ModelFile(file, kind, keys or _nothing(file), "\n".join(lines[end + 1 :]), end + 2, keys is not None)


def _read_python(file: str, kind: Kind, text: str) -> ModelFile:
    import ast  # noqa: PLC0415  # a Python model is rare

    # Mistakes inside go unreported: a Python model is refused as a whole, and its name is all that matters.
    try:
        docstring = ast.get_docstring(ast.parse(text)) or ""
    except (SyntaxError, ValueError):
        docstring = ""
    keys = _keys(docstring, file, 1, Problems())
    return ModelFile(file, kind, keys or _nothing(file), None, 1, True)


def _keys(text: str, file: str, first_line: int, problems: Problems) -> Table | None:
    node: Node | None = read_document(text, file, problems, first_line)
    if node is None or isinstance(node, Table):
        return node
    problems.add(node.where, "the file must hold keys, such as `interval: 1 hour`")
    return None


def _is_comment(line: str) -> bool:
    plain = line.strip()
    return not plain or plain.startswith("#") or (plain.startswith("--") and plain != _FENCE)


def _nothing(file: str) -> Table:
    return Table({}, {}, Where(file, 1))
