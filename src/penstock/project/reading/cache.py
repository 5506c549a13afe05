"""What did an earlier reading find out? Files of JSON that are believed only whole and only for the same key."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

_FORMAT = "penstock cache 1"
_MAX_BYTES = 100_000_000
_MAX_ENTRIES = 12
_LEFTOVER_SECONDS = 3600


class Cache:
    """A folder that may vanish, be read-only or hold anything at all: then nothing is remembered."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, name: str, key: str) -> object:
        """What was written under `name` and `key`; None when it was not, or is not all there any more."""
        if self.folder is None:
            return None
        try:
            file = self.folder / f"{name}.json"
            if file.stat().st_size > _MAX_BYTES:
                return None
            head, _, body = file.read_bytes().partition(b"\n")
            return json.loads(body) if head == _head(key, body) else None
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, name: str, key: str, value: object) -> None:
        """Whole or not at all, whoever else writes; without a word when it cannot be."""
        if self.folder is None:
            return
        with suppress(OSError, TypeError, ValueError):
            body = json.dumps(value, separators=(",", ":")).encode()
            if len(body) > _MAX_BYTES:
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = self.folder / f".{uuid4().hex}.new"
            try:
                with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(_head(key, body) + b"\n" + body)
                partial.replace(self.folder / f"{name}.json")
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            self._prune()

    def _prune(self) -> None:
        """Keep the newest entries, and nothing that a process left behind when it was killed."""
        files = sorted((file.stat().st_mtime, file) for file in self._files())
        old = time.time() - _LEFTOVER_SECONDS
        leftovers = [file for moment, file in files if file.suffix == ".new" and moment < old]
        entries = [file for _, file in files if file.suffix == ".json"]
        for file in leftovers + entries[:-_MAX_ENTRIES]:
            file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [file for file in (self.folder or Path()).iterdir() if file.suffix in (".json", ".new")]


def _head(key: str, body: bytes) -> bytes:
    return f"{_FORMAT} {key} {hashlib.sha256(body).hexdigest()}".encode()
