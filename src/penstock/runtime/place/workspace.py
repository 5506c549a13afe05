"""What is this command working with: which project, which database, which Spark?"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.embedded.server import EmbeddedPostgres
from penstock.errors import UnknownModelError, UsageError
from penstock.planner.observations import superseded
from penstock.project import Project, cache_of, load
from penstock.runtime.place.definitions import bundle, definitions
from penstock.runtime.place.table_resolver import TableResolver
from penstock.state.store import State
from penstock.values.models import DynamicModel, IntervalModel, Model, Source
from penstock.values.records import Change, StateView

if TYPE_CHECKING:
    from penstock.engine.delta import DeltaEngine
    from penstock.engine.spark.session import SparkSettings
    from penstock.engine.values.job import Step


def no_step(label: str) -> None:
    """Nothing happens at any step."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the state database is, and what brings it back when it is down."""

    dsn: str = field(repr=False)
    revive: Callable[[], None] | None = None

    def connect(self, schema: str, *, migrate: bool) -> State:
        return State.open(self.dsn, schema, migrate=migrate, before=self.revive)


@dataclass(slots=True)
class Workspace:
    """One project on one target, with the database open and Spark not yet started."""

    project: Project
    address: Address
    state: State
    environ: Mapping[str, str]
    step: Step = no_step
    worker: str = field(default_factory=lambda: f"{socket.gethostname()}-{uuid4().hex[:8]}")
    _engine: DeltaEngine | None = None

    @property
    def engine(self) -> DeltaEngine:
        """Made when it is first asked for, by the thread that opened this: commands that only ask do not need it."""
        if self._engine is None:
            from penstock.engine.delta import DeltaEngine
            from penstock.engine.spark.session import Session

            self._engine = DeltaEngine(Session(spark_settings(self.project, self.environ)), self.resolver.storage)
        return self._engine

    @engine.setter
    def engine(self, other: DeltaEngine) -> None:
        self._engine = other

    def close(self) -> None:
        if self._engine is not None:
            self._engine.session.stop()
        self.state.close()

    @property
    def resolver(self) -> TableResolver:
        return TableResolver(self.project)

    @property
    def host(self) -> str:
        return socket.gethostname()

    @property
    def slots(self) -> int:
        """How many tasks this process does at a time."""
        return self.project.settings.worker.concurrency

    def connect(self) -> State:
        """One more connection, for a thread of its own."""
        return self.address.connect(self.project.settings.target.schema, migrate=False)

    def named(self, names: tuple[str, ...]) -> tuple[Model, ...]:
        """The models that people named, in the project's order; all of them when none was named."""
        return tuple(self.project.graph.models[self.resolve(name)] for name in names or self.project.graph.models)

    def resolve(self, name: str) -> str:
        return resolve(self.project, name)

    def built(self, names: tuple[str, ...]) -> tuple[IntervalModel | DynamicModel, ...]:
        """Those of them that are computed."""
        return tuple(model for model in self.named(names) if not isinstance(model, Source))

    def interval_models(self, names: tuple[str, ...]) -> tuple[IntervalModel, ...]:
        return tuple(model for model in self.named(names) if isinstance(model, IntervalModel))


def resolve(project: Project, name: str) -> str:
    """The full name: `db.table`, or the bare table where only one model has it."""
    models = project.graph.models
    if name in models:
        return name
    bare = [full for full in models if full.split(".")[1] == name]
    if len(bare) == 1:
        return bare[0]
    raise UnknownModelError(name, models)


@contextmanager
def open_workspace(
    root: Path,
    environ: Mapping[str, str],
    *,
    target: str | None = None,
    config: Path | None = None,
    step: Step = no_step,
    project: Project | None = None,
) -> Iterator[Workspace]:
    """Load the project and attach to its database; Spark starts only when it is needed, and ends here."""
    project = project or open_project(root, environ, target, config)
    with database(project, environ) as address:
        embedded = project.settings.target.state is None
        state = address.connect(project.settings.target.schema, migrate=embedded)
        workspace = Workspace(project, address, state, environ, step)
        try:
            yield workspace
        finally:
            workspace.close()


@contextmanager
def database(project: Project, environ: Mapping[str, str]) -> Iterator[Address]:
    """The address of the project's PostgreSQL: the given one, or the embedded one, started if need be."""
    dsn = project.settings.target.state
    if dsn is not None:
        yield Address(dsn)
        return
    with EmbeddedPostgres.attach(project.root, environ) as server:
        yield Address(server.dsn, server.revive)


def spark_settings(project: Project, environ: Mapping[str, str]) -> SparkSettings:
    from penstock.engine.spark.session import SparkSettings

    target = project.settings.target
    return SparkSettings(
        cache=cache_folder(environ),
        environ=environ,
        master=target.master or "local[*]",
        conf=target.conf,
        storage=target.storage,
        quick=target.master is None,
    )


def open_project(root: Path, environ: Mapping[str, str], target: str | None, config: Path | None) -> Project:
    """Load a project. What was found out about it is kept beside it, so that the next load is quick."""
    return load(root, environ, target, config, cache_of(root))


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where jars and class archives are kept between runs, for all projects of a user."""
    folder = environ.get("PENSTOCK_CACHE") or environ.get("XDG_CACHE_HOME")
    base = Path(folder) if folder else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return base / "penstock"


def applied(workspace: Workspace, view: StateView) -> None:
    """That the tables were built from the files as they are now; a UsageError when they were not."""
    if superseded(workspace.project.revision, view):
        raise UsageError("the project was changed since it was applied", hint="penstock run builds what changed first")


def apply(workspace: Workspace) -> tuple[Change, ...]:
    """Store the revision and make room for what is new."""
    project = workspace.project
    manifest = {"project": project.settings.name, "models": sorted(project.graph.models)}
    return workspace.state.projects.apply(project.revision, bundle(project), manifest, definitions(project))
