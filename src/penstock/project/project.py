"""What is the project, and is it right?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import ProjectError, UsageError
from penstock.intervals import Interval
from penstock.models import Graph, IntervalModel, Model, Source
from penstock.models.axis import SECOND
from penstock.models.fingerprint import fingerprint
from penstock.project import templates, values
from penstock.project.analysis import Analysis
from penstock.project.build import Builder
from penstock.project.documents import read_document
from penstock.project.drafts import Draft, draft
from penstock.project.files import collect, model_files
from penstock.project.files import content as bounded
from penstock.project.limits import MAX_FILE_BYTES
from penstock.project.link import Linked, Linker
from penstock.project.problems import Notice, Problems, Where, did_you_mean
from penstock.project.rendering import STAND_IN, Ref, ScanContext, Scene, render_model, render_scan
from penstock.project.settings import CONFIG, Settings, is_relative, read_settings
from penstock.project.trial import Trial
from penstock.secrets import conceal


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
    analyses: Mapping[str, Analysis] = field(repr=False)
    """What was found out about queries; give it to the next `load` as `known` and nothing is parsed again."""

    def resolve(self, location: str) -> str:
        """`location` as an absolute path or URL."""
        return str((self.root / location).resolve()) if is_relative(location) else location


def load(
    root: Path,
    environ: Mapping[str, str],
    target: str | None = None,
    config: Path | None = None,
    known: Mapping[str, Analysis] | None = None,
) -> Project:
    """The project in the folder `root`; all of its mistakes together are one ProjectErrors."""
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
    return _assembled(_Reading(root, environ, settings, files, known or {}), problems)


def unpack(
    files: Mapping[str, bytes],
    root: Path,
    environ: Mapping[str, str],
    target: str | None = None,
    known: Mapping[str, Analysis] | None = None,
) -> Project:
    """The project in a stored bundle; `root` is what relative locations are relative to."""
    problems = Problems()
    settings = _settings(files[CONFIG], CONFIG, environ, target, problems)
    return _assembled(_Reading(root, environ, settings, files, known or {}), problems)


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
    scene = _scene(model, project, groups, model.interval.max)
    return _located(
        lambda: render_model(model.sql, scene, bounds, choices=choices, ref=ref, task_start=task_start, lane=lane),
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
    return render(model, project, STAND_IN, choices, ref, task_start, lane)


def render_bounds(source: Source, project: Project, scan: ScanContext, ref: Ref) -> str:
    """The SQL that finds the bounds of a source which has a bounds query."""
    sql = source.bounds_sql
    if sql is None:
        raise ValueError(f"{source.name} has no bounds query")
    scene = _scene(source, project, (), None)
    return _located(lambda: render_scan(sql, scene, scan, ref), source.file, sql, project)


def revision(files: Mapping[str, bytes]) -> str:
    """A hash of the bundle; line endings do not count."""
    told = hashlib.sha256()
    for name, content in sorted(files.items()):
        plain = content.replace(b"\r\n", b"\n")
        told.update(f"{name}\0{len(plain)}\0".encode())
        told.update(plain)
    return told.hexdigest()


@dataclass(frozen=True, slots=True)
class _Reading:
    root: Path
    environ: Mapping[str, str] = field(repr=False)
    settings: Settings
    files: Mapping[str, bytes] = field(repr=False)
    known: Mapping[str, Analysis] = field(repr=False)


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


def _assembled(reading: _Reading, problems: Problems) -> Project:
    drafts = _drafts(reading, problems)
    links = Linker(drafts, reading.settings, problems).linked()
    builder = Builder(drafts, reading.settings, problems)
    positions = {name: values.typed(one.keys.get("position")) for name, one in drafts.items()}
    trial = Trial(reading.settings, positions, problems, reading.known)
    models: list[Model] = []
    for one in drafts.values():
        if one.enabled and one.type == "source":
            source = builder.source(one)
            trial.source(one, source)
            models.append(source)
    intervals = (linked for linked in links.values() if linked.draft.type == "interval")
    models += [_interval_model(linked, builder, trial, problems) for linked in intervals]
    problems.raise_if_any()
    graph = Graph.of(tuple(models))
    return Project(
        root=reading.root,
        settings=reading.settings,
        graph=graph,
        files=reading.files,
        revision=revision(reading.files),
        fingerprints={name: fingerprint(model, _used(model, reading.settings)) for name, model in graph.models.items()},
        warnings=problems.notices,
        analyses=trial.analyses,
    )


def _interval_model(linked: Linked, builder: Builder, trial: Trial, problems: Problems) -> IntervalModel:
    before = problems.count
    model = builder.interval_model(linked)
    sound = linked.draft.sound and problems.count == before
    if not linked.readable:
        return model
    tried = trial.model(linked, model, sound)
    if sound and problems.count == before:
        builder.check_bounded(linked, tried)
    return tried


def _drafts(reading: _Reading, problems: Problems) -> dict[str, Draft]:
    """Every model by name, disabled ones too; two files with one name are an error."""
    found: dict[str, Draft] = {}
    folded: dict[str, Draft] = {}
    for file in model_files(reading.files, reading.settings, problems):
        made = draft(file, reading.settings, reading.environ, problems)
        if made is None:
            continue
        first = folded.setdefault(made.name.lower(), made)
        if first is made:
            found[made.name] = made
            continue
        said = f"two files are the model {made.name}: {first.file.file} and {file.file}"
        if first.name != made.name:
            said = f"{first.file.file} is the model {first.name} and {file.file} is {made.name}"
            said = f"{said}: names that differ in letter case only are one table to Spark and to many file systems"
        problems.add(Where(file.file, made.where.line), said)
    overrides = reading.settings.overrides
    for name in overrides.entries:
        if name not in found:
            problems.add(overrides.at(name), f"overrides: there is no model {name!r}{did_you_mean(name, found)}")
    return found


def _used(model: Model, settings: Settings) -> dict[str, object]:
    """The values of `env`, `var` and `self.interval` that the model's template can see."""
    sql = model.sql if isinstance(model, IntervalModel) else model.bounds_sql
    if sql is None:
        return {}
    told = templates.outline(sql)
    names = told.names
    used: dict[str, object] = {}
    if "env" in names:
        members = told.members("env")
        used |= {f"env.{key}": text for key, text in model.env.items() if members is None or key in members}
    if "var" in names:
        asked = told.constants("var")
        used |= {f"var.{key}": value for key, value in settings.vars.items() if asked is None or key in asked}
    if isinstance(model, IntervalModel) and "self" in names:
        own = told.members("self")
        used |= {"self.interval": model.interval.max} if own is None or "interval" in own else {}
    for kind, database in settings.databases.items():
        if kind in names:
            used[kind] = database
    return used


def _scene(model: Model, project: Project, groups: tuple[tuple[str, ...], ...], interval: int | None) -> Scene:
    return Scene(
        name=model.name,
        position=model.position,
        axis=model.axis or SECOND,
        interval=interval,
        groups=groups,
        positions={name: other.position for name, other in project.graph.models.items()},
        databases=project.settings.databases,
        env=model.env,
        vars=project.settings.vars,
        stand_ins=model.stand_ins if isinstance(model, IntervalModel) else {},
    )


def _located(made: Callable[[], str], file: str, sql: str, project: Project) -> str:
    """The text that `made` returns; a template's failure names its file and line."""
    try:
        return made()
    except templates.TemplateProblem as problem:
        # The query is the end of its file, so what is missing from it is the front matter.
        above = project.files[file].count(b"\n") - sql.count("\n") if file in project.files else 0
        raise ProjectError(problem.message, file=file, line=above + problem.line) from None
