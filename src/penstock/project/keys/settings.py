"""What does `penstock.yml` say?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from penstock.project.keys import values
from penstock.project.keys.keys import PROJECT
from penstock.project.keys.shapes import PROJECT_FILE
from penstock.project.reading.documents import Items, Node, Plain, Scalar, Table
from penstock.project.reading.problems import Problems, Where, did_you_mean
from penstock.secrets import secret_values

Kind = Literal["external", "transformation"]
KINDS: tuple[Kind, ...] = ("external", "transformation")
CONFIG = "penstock.yml"
DEFAULT_PATHS: Mapping[Kind, tuple[str, ...]] = {
    "external": ("models/external",),
    "transformation": ("models/transformations",),
}
_SHORTEST_RETENTION = 3600
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Target:
    """One deployment: where its state, its Spark and its tables are."""

    name: str
    state: str | None = field(default=None, repr=False)
    """A PostgreSQL address, which may hold a password; None: the embedded one."""
    schema: str = "penstock"
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str = "./warehouse"

    @property
    def secrets(self) -> frozenset[str]:
        """The values that no argument, log or error may show."""
        return secret_values({**self.storage, **self.conf, "state": self.state or ""})


@dataclass(frozen=True, slots=True)
class WorkerGlob:
    pattern: str
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    concurrency: int = 2
    models: tuple[WorkerGlob, ...] = (WorkerGlob("*"),)
    tags: tuple[str, ...] = ()
    shutdown_seconds: int = 30


@dataclass(frozen=True, slots=True)
class Scheduler:
    sweep_seconds: int = 60
    repair_delay_seconds: int = 30
    retention_seconds: int = 30 * 86400
    """How long finished tasks are kept."""


@dataclass(frozen=True, slots=True)
class Web:
    address: str = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Settings:
    name: str
    warehouse: str
    """As the target in use says; relative to the project unless absolute or a URL."""
    databases: Mapping[Kind, str]
    paths: Mapping[Kind, tuple[str, ...]]
    configured_paths: Mapping[str, Where]
    """The paths as they were written, and where."""
    defaults: Table
    overrides: Table
    env: Mapping[str, str] = field(repr=False)
    vars: Mapping[str, Plain]
    worker: Worker
    scheduler: Scheduler
    web: Web
    logging: str
    target: Target


def is_relative(location: str) -> bool:
    """A path that means something only beside the project."""
    return not _URL.match(location) and not PurePath(location).is_absolute()


class SettingsReader:
    """Reads one checked document; every mistake goes to `problems`."""

    def __init__(self, root: Table, environ: Mapping[str, str], problems: Problems) -> None:
        self.root, self.environ, self.problems = root, environ, problems

    def settings(self, chosen: str | None) -> Settings:
        target = self._target(chosen)
        paths = {kind: self._paths(kind) for kind in KINDS}
        written = values.table(self.root.get("paths"))
        nothing = Table({}, {}, self.root.where)
        return Settings(
            name=values.typed(self.root.get("name")) or "",
            warehouse=target.warehouse,
            databases=self._databases(),
            paths=paths,
            configured_paths={
                path: written.at(kind) for kind in KINDS if written and kind in written.entries for path in paths[kind]
            },
            defaults=values.table(self.root.get("defaults")) or nothing,
            overrides=values.table(self.root.get("overrides")) or nothing,
            env=self._texts(self.root.get("env")),
            vars=self._vars(),
            worker=self._worker(),
            scheduler=self._scheduler(),
            web=Web(self._text(values.inside(self.root.get("web"), "address")) or Web().address),
            logging=values.typed(self.root.get("logging")) or "info",
            target=target,
        )

    def _target(self, chosen: str | None) -> Target:
        targets = values.table(self.root.get("targets"))
        known = tuple(targets.entries) if targets else ("dev",)
        name = chosen or next(iter(known), "dev")
        if name not in known:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            self.problems.add(self.root.at("targets"), f"there is no target {name!r}{near}")
        node = targets.get(name) if targets else None
        own = values.inside(node, "warehouse") or self.root.get("warehouse")
        state = self._text(values.inside(node, "state"))
        warehouse = self._text(own) or "./warehouse"
        if state is not None and is_relative(warehouse):
            where = own.where if own else (node.where if node else self.root.where)
            said = f"the warehouse {warehouse!r} is relative, but the target {name!r} has state:"
            self.problems.add(where, f"{said} several machines share it, so it must be an absolute path or a URL")
        spark = values.inside(node, "spark")
        return Target(
            name=name,
            state=state,
            schema=values.typed(values.inside(node, "schema")) or "penstock",
            master=self._text(values.inside(spark, "master")),
            conf=self._texts(values.inside(spark, "conf")),
            storage=self._texts(values.inside(node, "storage")),
            warehouse=warehouse,
        )

    def _databases(self) -> dict[Kind, str]:
        node = self.root.get("databases")
        named = {kind: values.typed(values.inside(node, kind)) for kind in KINDS}
        return {kind: name for kind, name in named.items() if name}

    def _paths(self, kind: Kind) -> tuple[str, ...]:
        return values.texts(values.inside(self.root.get("paths"), kind)) or DEFAULT_PATHS[kind]

    def _vars(self) -> dict[str, Plain]:
        node = values.table(self.root.get("vars"))
        return {key: values.value(item) for key, item in node.entries.items()} if node else {}

    def _worker(self) -> Worker:
        node, usual = self.root.get("worker"), Worker()
        globs = values.inside(node, "models")
        models = tuple(_glob(item) for item in globs.items) if isinstance(globs, Items) else usual.models
        return Worker(
            concurrency=values.number(values.inside(node, "concurrency"), usual.concurrency),
            models=models,
            tags=values.texts(values.inside(node, "tags")),
            shutdown_seconds=values.length(values.inside(node, "shutdown_timeout"), usual.shutdown_seconds),
        )

    def _scheduler(self) -> Scheduler:
        node, usual = self.root.get("scheduler"), Scheduler()
        retention = values.inside(node, "retention")
        retention_seconds = values.length(retention, usual.retention_seconds)
        if retention is not None and retention_seconds < _SHORTEST_RETENTION:
            said = f"scheduler.retention must be at least 1 hour, not {values.typed(retention)}"
            self.problems.add(retention.where, f"{said}: finished tasks are looked up while work goes on")
        return Scheduler(
            sweep_seconds=values.length(values.inside(node, "sweep"), usual.sweep_seconds),
            repair_delay_seconds=values.length(values.inside(node, "repair_delay"), usual.repair_delay_seconds),
            retention_seconds=retention_seconds,
        )

    def _text(self, node: Node | None) -> str | None:
        if not isinstance(node, Scalar):
            return None
        try:
            return values.expanded(node.raw, self.environ)
        except values.MissingVariableError as error:
            self.problems.add(node.where, str(error), f"set {error.name}, or choose another target with --target")
            return None

    def _texts(self, node: Node | None) -> dict[str, str]:
        entries = node.entries if isinstance(node, Table) else {}
        read = {key: self._text(item) for key, item in entries.items()}
        return {key: text for key, text in read.items() if text is not None}


def read_settings(
    root: Node | None, file: str, environ: Mapping[str, str], chosen: str | None, problems: Problems
) -> Settings:
    """The settings in the document of `file`, as far as they can be read."""
    cleaned = PROJECT.clean(root, PROJECT_FILE, problems) if root is not None else None
    if not isinstance(cleaned, Table):
        # Without a name the rest is still worth reading: its mistakes and the models' are reported too.
        table = root.without() if isinstance(root, Table) else Table({}, {}, Where(file, 1))
        named = table.having("name", Scalar("unnamed", "unnamed", table.where), table.where)
        quiet = PROJECT.clean(named, PROJECT_FILE, Problems())
        cleaned = quiet if isinstance(quiet, Table) else Table({}, {}, table.where)
    return SettingsReader(cleaned, environ, problems).settings(chosen)


def _glob(node: Node) -> WorkerGlob:
    if isinstance(node, Table):
        size = node.get("concurrency")
        return WorkerGlob(values.typed(node.get("pattern")) or "*", values.number(size, 0) or None)
    return WorkerGlob(values.typed(node) or "*")
