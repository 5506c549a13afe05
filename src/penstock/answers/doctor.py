"""Is everything there that Penstock needs?"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from penstock.embedded.server import EmbeddedPostgres
from penstock.engine.log.probe import put_if_absent
from penstock.engine.spark import java
from penstock.engine.spark.jars import DELTA, jars_ready
from penstock.errors import PenstockError
from penstock.project import Project, load, project_root
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import cache_folder
from penstock.secrets import concealed
from penstock.state.store import State


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, what is there, and what to do when it does not do."""

    name: str
    ok: bool
    detail: str
    hint: str | None = None

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "ok": self.ok, "found": self.detail, "hint": self.hint}


def examine(start: Path, config: Path | None, target: str | None, environ: Mapping[str, str]) -> list[Finding]:
    """Look at everything once; nothing is installed, no JVM is started."""
    findings = [_python(), _looked("java", lambda: _java(environ)), _spark(), _looked("delta", lambda: _delta(environ))]
    try:
        project = load(project_root(start, config), environ, target, config)
    except PenstockError as error:
        return [*findings, Finding("project", False, error.message.splitlines()[0], error.hint)]
    sources = len(project.graph.sources)
    counted = f"sources: {sources}, models: {len(project.graph.models) - sources}"
    findings.append(Finding("project", True, f"{project.settings.name}, {counted}"))
    findings.append(_looked("postgresql", lambda: _postgres(project, environ)))
    findings.append(_looked("warehouse", lambda: _warehouse(project)))
    return findings


def _looked(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        finding = look()
    except PenstockError as error:
        return Finding(name, False, error.message, error.hint)
    return replace(finding, detail=concealed(finding.detail))


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", sys.version_info >= (3, 11), version, None if sys.version_info >= (3, 11) else "use 3.11+")


def _java(environ: Mapping[str, str]) -> Finding:
    runtime = java.find(environ, cache_folder(environ))
    return Finding("java", True, f"{runtime.major} at {runtime.home} (from {runtime.origin})")


def _spark() -> Finding:
    return Finding("spark", True, f"pyspark {importlib.metadata.version('pyspark')}")


def _delta(environ: Mapping[str, str]) -> Finding:
    log = f"deltalake {importlib.metadata.version('deltalake')}"
    if jars_ready(environ, cache_folder(environ)):
        return Finding("delta", True, f"jars {DELTA} in the cache, {log}")
    return Finding("delta", True, f"jars {DELTA} are fetched at the first Spark start, {log}")


def _postgres(project: Project, environ: Mapping[str, str]) -> Finding:
    dsn = project.settings.target.state
    if dsn is not None:
        return Finding("postgresql", True, f"{State.server_version(dsn)} given as state:")
    seen = EmbeddedPostgres.inspect(project.root, environ)
    if seen.problems:
        return Finding("postgresql", False, "; ".join(seen.problems), "or give a PostgreSQL server as `state:`")
    running = f"running as pid {seen.running_pid}" if seen.running_pid else "starts on first use"
    place = seen.home or "a place to be chosen"
    return Finding("postgresql", True, f"{seen.version} embedded, {running}, as {seen.account}, data in {place}")


def _warehouse(project: Project) -> Finding:
    location = TableResolver(project).warehouse
    put_if_absent(f"{location.rstrip('/')}/.penstock-doctor-{uuid4().hex}", project.settings.target.storage)
    return Finding("warehouse", True, f"{location}: two writers of one commit, one wins")
