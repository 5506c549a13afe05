"""Which code reads projects here? What other code has found out is not believed."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from penstock.errors import UsageError

_OWN = ("project", "values", "planner")
_LIBRARIES = ("jinja2", "sqlglot", "yaml")
_TELLING = ("__init__.py", "_version.py")
"""Where a library says its version: reading that is much cheaper than an import or its metadata."""


@lru_cache(maxsize=1)
def identity() -> str:
    """A hash of our own code and of the versions of what it reads files with; never the same for two of them."""
    own = Path(__file__).parents[2]
    parts = [*own.glob("*.py"), *(file for name in _OWN for file in (own / name).rglob("*.py"))]
    return code_hash([(str(file.relative_to(own)), _content(file)) for file in parts], versions())


def versions() -> dict[str, str]:
    """Of each library, the text that says which one it is."""
    return {name: _version(name) for name in _LIBRARIES}


def code_hash(parts: list[tuple[str, bytes]], libraries: dict[str, str]) -> str:
    digest = hashlib.sha256(f"{sys.version_info[:3]}{sorted(libraries.items())}".encode())
    for name, content in sorted(parts):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def require_plain_parser() -> None:
    """That sqlglot is the one in Python: its compiled twin cannot be extended, and keeps other limits."""
    if any(file.suffix in (".so", ".pyd") for folder in _folders("sqlglot") for file in folder.glob("parser.*")):
        raise UsageError(
            "sqlglot is compiled here (sqlglotc), which Penstock cannot read queries with",
            hint="pip uninstall sqlglotc, then pip install --force-reinstall --no-deps sqlglot",
        )


def _folders(library: str) -> list[Path]:
    spec = find_spec(library)
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]


def _version(library: str) -> str:
    files = [folder / name for folder in _folders(library) for name in _TELLING]
    return "\0".join(_content(file).decode(errors="replace") for file in files if file.exists()) or uuid4().hex


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return uuid4().bytes  # code without its text: whatever it found out is not kept
