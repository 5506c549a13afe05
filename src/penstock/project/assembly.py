"""How do files become models? Every template is tried and every query analysed on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from penstock.project.build import Builder
from penstock.project.drafts import NOT_YET, Draft, draft
from penstock.project.files import model_files
from penstock.project.kept import Meaning, Typed
from penstock.project.keys import values
from penstock.project.keys.settings import Settings
from penstock.project.link import Linked, Linker
from penstock.project.queries.analysis import Analysis
from penstock.project.reading.problems import Problems, Where, did_you_mean
from penstock.project.templates import templates
from penstock.project.templates.names import settings_seen
from penstock.project.trial import Trial
from penstock.values.models import DynamicModel, FullModel, Graph, IntervalModel, Model, Source
from penstock.values.models.fingerprint import fingerprint


@dataclass(frozen=True, slots=True)
class Assembled:
    """What files mean, with all that was found out on the way."""

    meaning: Meaning
    typed: Mapping[str, Typed]
    analyses: Mapping[str, Analysis]


@dataclass(frozen=True, slots=True)
class Reading:
    environ: Mapping[str, str] = field(repr=False)
    settings: Settings
    files: Mapping[str, bytes] = field(repr=False)
    known: Mapping[str, Analysis] = field(repr=False)
    """Analyses remembered from an earlier reading, by digest."""


def assembled(reading: Reading, problems: Problems) -> Assembled:
    """The models; all mistakes together are one ProjectErrors."""
    drafts = _drafts(reading, problems)
    links = Linker(drafts, reading.settings, problems).linked()
    builder = Builder(drafts, reading.settings, problems)
    positions = {name: values.typed(model_draft.keys.get("position")) for name, model_draft in drafts.items()}
    trial = Trial(reading.settings, positions, problems, reading.known)
    models: list[Model] = []
    for model_draft in drafts.values():
        if model_draft.enabled and model_draft.type == "source":
            source = builder.source(model_draft)
            trial.source(model_draft, source)
            models.append(source)
    for linked in links.values():
        declared = _declared(linked, builder, trial, problems)
        if not isinstance(declared, FullModel):
            models.append(declared)
        elif linked.draft.sound:  # the one place where it is refused; whatever else is wrong with it was said
            problems.add(linked.draft.at("schedule"), f"{declared.name}: a full model {NOT_YET}")
    problems.raise_if_any()
    graph = Graph.of(tuple(models))
    prints = {name: fingerprint(model, _used(model, reading.settings)) for name, model in graph.models.items()}
    return Assembled(
        meaning=Meaning(graph, prints, problems.notices),
        typed={name: _typed(drafts[name]) for name in graph.models},
        analyses=trial.analyses,
    )


def _typed(draft: Draft) -> Typed:
    return Typed(values.typed(draft.typed.get("location")), values.text_map(draft.typed.get("env")))


def _declared(
    linked: Linked, builder: Builder, trial: Trial, problems: Problems
) -> IntervalModel | DynamicModel | FullModel:
    match linked.draft.type:
        case "interval":
            return _interval_model(linked, builder, trial, problems)
        case "dynamic":
            model = builder.dynamic_model(linked)
            if linked.readable:
                trial.dynamic_model(linked, model)
            return model
        case "full":
            return builder.full_model(linked)
        case "source":
            raise TypeError(f"{linked.draft.name} is a source: it reads nothing")


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


def _drafts(reading: Reading, problems: Problems) -> dict[str, Draft]:
    """Every model by name, disabled ones too; two files with one name are an error."""
    drafts: dict[str, Draft] = {}
    folded: dict[str, Draft] = {}
    for file in model_files(reading.files, reading.settings, problems):
        model = draft(file, reading.settings, reading.environ, problems)
        if model is None:
            continue
        first = folded.setdefault(model.name.lower(), model)
        if first is model:
            drafts[model.name] = model
            continue
        said = f"two files are the model {model.name}: {first.file.file} and {file.file}"
        if first.name != model.name:
            said = f"{first.file.file} is the model {first.name} and {file.file} is {model.name}"
            said = f"{said}: names that differ in letter case only are one table to Spark and to many file systems"
        problems.add(Where(file.file, model.where.line), said)
    overrides = reading.settings.overrides
    for name in overrides.entries:
        if name not in drafts:
            problems.add(overrides.at(name), f"overrides: there is no model {name!r}{did_you_mean(name, drafts)}")
    return drafts


def _template(model: Model) -> str | None:
    match model:
        case Source():
            return model.bounds_sql
        case IntervalModel() | DynamicModel():
            return model.sql
        case _:
            assert_never(model)


def _used(model: Model, settings: Settings) -> dict[str, object]:
    """The values of the project that the model's template can see."""
    sql = _template(model)
    return {} if sql is None else settings_seen(templates.outline(sql), model, settings)
