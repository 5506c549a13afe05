"""How is a project stored in the state database?"""

from __future__ import annotations

import io
import zipfile
from typing import assert_never

from penstock.project import Project
from penstock.values.models import DynamicModel, IntervalModel, Model, Source
from penstock.values.records import Definition
from penstock.values.tasks import LANES, Lane

_EPOCH = (1980, 1, 1, 0, 0, 0)


def definitions(project: Project) -> tuple[Definition, ...]:
    return tuple(_definition(project, model) for model in project.graph.models.values())


def _definition(project: Project, model: Model) -> Definition:
    config: dict[str, object] = {"description": model.description, "tags": list(model.tags), "file": model.file}
    fingerprint = project.fingerprints[model.name]
    match model:
        case Source():
            return Definition(model.name, model.type, fingerprint, model.axis, model.position, config)
        case IntervalModel():
            return _interval_definition(model, fingerprint, config)
        case DynamicModel():
            return _dynamic_definition(model, fingerprint, config)
        case _:
            assert_never(model)


def _interval_definition(model: IntervalModel, fingerprint: str, config: dict[str, object]) -> Definition:
    interval = model.interval
    config |= {"interval": {"max": interval.max, "min": interval.min, "align": interval.align}, "sql": model.sql}
    return Definition(
        name=model.name,
        type=model.type,
        fingerprint=fingerprint,
        axis=model.axis,
        position=model.position,
        config=config,
        edges=_edges(model),
        max_inflight=model.max_inflight,
        retries=model.retries,
        schedules=_schedules(model),
    )


def _dynamic_definition(model: DynamicModel, fingerprint: str, config: dict[str, object]) -> Definition:
    """One refresh at a time: each begins from the rows of the one before."""
    config |= {"target_lag": model.target_lag, "refresh_strategy": model.refresh_strategy, "sql": model.sql}
    return Definition(
        name=model.name,
        type=model.type,
        fingerprint=fingerprint,
        axis=None,
        position=None,
        config=config,
        edges=_edges(model),
        max_inflight=1,
        retries=model.retries,
    )


def _edges(model: IntervalModel | DynamicModel) -> tuple[tuple[str, int, int, int, int, bool], ...]:
    return tuple(
        (member.model, number, ordinal, member.before, member.after, member.optional)
        for number, group in enumerate(model.dependencies)
        for ordinal, member in enumerate(group)
    )


def _schedules(model: IntervalModel) -> tuple[tuple[Lane, str], ...]:
    """Only what was written: a lane without a cadence follows its inputs, and one that is off has no slots."""
    return tuple((lane, spec) for lane in LANES if (spec := model.schedules.of(lane)) not in (None, "off"))


def bundle(project: Project) -> bytes:
    """Every file of the project in one archive; equal projects give equal bytes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(project.files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return target.getvalue()


def unbundled(archive: bytes) -> dict[str, bytes]:
    """The files of a stored project, by their path in it."""
    with zipfile.ZipFile(io.BytesIO(archive)) as stored:
        return {name: stored.read(name) for name in stored.namelist()}
