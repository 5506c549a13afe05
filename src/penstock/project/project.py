"""What is the project, and is it right?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import ProjectError, UsageError
from penstock.project import kept
from penstock.project.files import collect
from penstock.project.files import content as bounded
from penstock.project.keys.settings import CONFIG, Settings, is_relative, read_settings
from penstock.project.keys.values import variables
from penstock.project.queries.analysis import Analysis
from penstock.project.reading.cache import Cache
from penstock.project.reading.documents import read_document
from penstock.project.reading.limits import MAX_FILE_BYTES
from penstock.project.reading.problems import Notice, Problems
from penstock.project.reading.toolchain import identity, require_plain_parser
from penstock.project.templates.context import Ref, ScanContext, TemplateContext
from penstock.project.templates.lookups import TemplateProblem
from penstock.project.templates.rendering import PLACEHOLDER_BOUNDS, render_model, render_scan
from penstock.secrets import conceal
from penstock.values.intervals import Interval
from penstock.values.models import Graph, IntervalModel, Model, Source
from penstock.values.models.axis import SECOND

_ANALYSES = "analyses"


@dataclass(frozen=True, slots=True)
class Project:
    """A project without mistakes: what was read, and all that follows from it."""

    root: Path
    settings: Settings
    graph: Graph
    files: Mapping[str, bytes] = field(repr=False)
    """The bundle: every file the models are made of, by its path in the project."""
    revision: str
    fingerprints: Mapping[str, str]
    warnings: tuple[Notice, ...]

    def resolve(self, location: str) -> str:
        """`location` as an absolute path or URL."""
        return str((self.root / location).resolve()) if is_relative(location) else location


def load(
    root: Path,
    environ: Mapping[str, str],
    target: str | None = None,
    config: Path | None = None,
    cache: Path | None = None,
) -> Project:
    """The project in the folder `root`; all of its mistakes together are one ProjectErrors.

    With a folder as `cache`, files that have not changed since are not parsed again.
    """
    chosen = config or root / CONFIG
    if not chosen.is_file():
        raise UsageError(f"there is no {chosen}", hint="run penstock init DIR, or give --project DIR")
    label = CONFIG if config is None else str(config)
    try:
        content = bounded(chosen, MAX_FILE_BYTES)
    except ValueError as error:
        raise ProjectError(str(error), file=label, line=1) from None
    problems = Problems()
    settings = _settings(content, label, environ, target, problems)
    files = {CONFIG: content, **collect(root, settings, problems)}
    return _project(_Bundle(root, label, files, environ, settings), Cache(cache), problems)


def unpack(
    files: Mapping[str, bytes],
    root: Path,
    environ: Mapping[str, str],
    target: str | None = None,
    cache: Path | None = None,
) -> Project:
    """The project in a stored bundle; `root` is what relative locations are relative to."""
    problems = Problems()
    settings = _settings(files[CONFIG], CONFIG, environ, target, problems)
    return _project(_Bundle(root, CONFIG, files, environ, settings), Cache(cache), problems)


def cache_of(root: Path) -> Path:
    """Where commands keep what they found out about the project in `root`."""
    return root / ".penstock" / "cache"


def render(  # noqa: PLR0917  # one call per attempt, in the order of what it is about
    model: IntervalModel,
    project: Project,
    bounds: Interval,
    choices: Sequence[str],
    ref: Ref,
    task_start: int,
    lane: str,
) -> str:
    """The SQL of one interval. `choices` is the member used of each group, '' for an optional one without data."""
    groups = tuple(tuple(dependency.model for dependency in group) for group in model.dependencies)
    context = _template_context(model, project, groups, model.interval.max)
    return _located(
        lambda: render_model(model.sql, context, bounds, choices=choices, ref=ref, task_start=task_start, lane=lane),
        model.file,
        model.sql,
        project,
    )


def render_shared(
    model: IntervalModel,
    project: Project,
    *,
    choices: Sequence[str],
    ref: Ref,
    task_start: int,
    lane: str,
) -> str:
    """The SQL that many chunks share, before `sharing.shared` puts their edges in."""
    return render(model, project, PLACEHOLDER_BOUNDS, choices, ref, task_start, lane)


def render_bounds(source: Source, project: Project, scan: ScanContext, ref: Ref) -> str:
    """The SQL that finds the bounds of a source which has a bounds query."""
    sql = source.bounds_sql
    if sql is None:
        raise ValueError(f"{source.name} has no bounds query")
    context = _template_context(source, project, (), None)
    return _located(lambda: render_scan(sql, context, scan, ref), source.file, sql, project)


def revision(files: Mapping[str, bytes]) -> str:
    """A hash of the bundle; line endings do not count."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        plain = content.replace(b"\r\n", b"\n")
        digest.update(f"{name}\0{len(plain)}\0".encode())
        digest.update(plain)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Bundle:
    root: Path
    label: str
    """How mistakes in the project file name it."""
    files: Mapping[str, bytes] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    settings: Settings

    def key(self, revision: str) -> str:
        """Equal keys mean equal projects: the same files, read by the same code for the same target and environment."""
        named = {name for content in self.files.values() for name in variables(content)}
        environment = [(name, self.environ.get(name)) for name in sorted(named)]
        text = json.dumps([identity(), revision, self.label, self.settings.target.name, environment])
        return hashlib.sha256(text.encode()).hexdigest()


def _project(bundle: _Bundle, cache: Cache, problems: Problems) -> Project:
    require_plain_parser()
    revision_id = revision(bundle.files)
    key = bundle.key(revision_id)
    name = f"project-{key[:16]}"
    record = cache.read(name, key) if not problems.count else None
    meaning = kept.read(record, bundle.settings.env, bundle.environ) if record is not None else None
    if meaning is None:
        meaning = _assembled(bundle, cache, problems, name, key)
    return Project(
        root=bundle.root,
        settings=bundle.settings,
        graph=meaning.graph,
        files=bundle.files,
        revision=revision_id,
        fingerprints=meaning.fingerprints,
        warnings=meaning.warnings,
    )


def _assembled(bundle: _Bundle, cache: Cache, problems: Problems, name: str, key: str) -> kept.Meaning:
    from penstock.project.assembly import Reading, assembled  # noqa: PLC0415  # with it come Jinja and sqlglot

    known = _known_analyses(cache)
    assembly = assembled(Reading(bundle.environ, bundle.settings, bundle.files, known), problems)
    cache.write(name, key, kept.written(assembly.meaning, assembly.typed))
    if assembly.analyses != known:
        cache.write(
            _ANALYSES, identity(), {digest: kept.plain(analysis) for digest, analysis in assembly.analyses.items()}
        )
    return assembly.meaning


def _known_analyses(cache: Cache) -> dict[str, Analysis]:
    record = cache.read(_ANALYSES, identity())
    try:
        return (
            {name: kept.value_of(Analysis, fields) for name, fields in record.items()}
            if isinstance(record, dict)
            else {}
        )
    except (TypeError, ValueError):
        return {}


def _settings(
    content: bytes, label: str, environ: Mapping[str, str], target: str | None, problems: Problems
) -> Settings:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ProjectError("the file is not UTF-8 text", file=label, line=1) from None
    node = read_document(text, label, problems)
    settings = read_settings(node, label, environ, target or environ.get("PENSTOCK_TARGET") or None, problems)
    conceal(settings.target.secrets)
    return settings


def _template_context(
    model: Model, project: Project, groups: tuple[tuple[str, ...], ...], interval: int | None
) -> TemplateContext:
    return TemplateContext(
        name=model.name,
        position=model.position,
        axis=model.axis or SECOND,
        interval=interval,
        groups=groups,
        positions={name: other.position for name, other in project.graph.models.items()},
        databases=project.settings.databases,
        env=model.env,
        vars=project.settings.vars,
        stand_ins={} if isinstance(model, Source) else model.stand_ins,
    )


def _located(render: Callable[[], str], file: str, sql: str, project: Project) -> str:
    """The text that `render` returns; a template's failure names its file and line."""
    try:
        return render()
    except TemplateProblem as problem:
        # The query is the end of its file, so what is missing from it is the front matter.
        above = project.files[file].count(b"\n") - sql.count("\n") if file in project.files else 0
        raise ProjectError(problem.message, file=file, line=above + problem.line) from None
