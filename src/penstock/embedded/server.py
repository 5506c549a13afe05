"""How does a command get the project's own PostgreSQL, and what does `doctor` say about it?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import StateError


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is known without starting anything."""

    binaries: Path | None
    version: str | None
    home: Path | None
    log: Path | None
    account: str | None
    """As whom it runs, in words."""
    running_pid: int | None
    problems: tuple[str, ...]


class EmbeddedPostgres:
    """One client of the project's server, which runs from the first client to the last."""

    def __init__(self, project: Path, environ: Mapping[str, str], dsn: str, clients: int) -> None:
        self.dsn = dsn
        self._project, self._environ = project, environ
        self._clients: int | None = clients

    @classmethod
    def attach(cls, project: Path, environ: Mapping[str, str]) -> EmbeddedPostgres:
        """Start the server if it does not run; it stays until `close`, or until this process ends in any way."""
        refuse_platform(os.name)
        from penstock.embedded import attachment  # noqa: PLC0415 (needs modules that Windows lacks)

        project = project.resolve()
        try:
            clients, dsn = attachment.attach(project, environ)
        except OSError as error:
            raise StateError(
                f"the embedded PostgreSQL of {project} cannot be used: {error}",
                hint="give this user its own project folder, or give a PostgreSQL server as `state:`",
            ) from error
        return cls(project, environ, dsn, clients)

    def revive(self) -> None:
        """Start the server again if it is down; any number of threads and processes may ask at once.

        A second client for this moment: so no watcher stops what is just being started, even if this one is closed.
        """
        with EmbeddedPostgres.attach(self._project, self._environ) as again:
            if again.dsn != self.dsn:
                raise StateError(
                    f"the embedded PostgreSQL of {self._project} is back, but elsewhere",
                    hint="start this process again",
                )

    def close(self) -> None:
        if self._clients is not None:
            os.close(self._clients)
            self._clients = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def inspect(project: Path, environ: Mapping[str, str]) -> Inspection:
        """What there is, without starting or making anything."""
        refuse_platform(os.name)
        from penstock.embedded import attachment  # noqa: PLC0415 (needs modules that Windows lacks)

        return attachment.inspect(project.resolve(), environ)


def refuse_platform(name: str) -> None:
    """Locks, accounts and sockets are used as POSIX has them."""
    if name != "posix":
        raise StateError(
            "the embedded PostgreSQL does not run on Windows",
            hint="give a PostgreSQL server as `state:`, or work inside WSL",
        )
