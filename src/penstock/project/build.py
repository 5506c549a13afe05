"""Do the models fit together, and what are they as values?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from penstock.project.drafts import NOT_YET, Draft
from penstock.project.keys import values
from penstock.project.keys.checks import built_checks
from penstock.project.keys.settings import Settings, is_relative
from penstock.project.link import Linked, Member, Members, environment
from penstock.project.reading.documents import Node, Scalar
from penstock.project.reading.limits import MAX_SECONDS
from penstock.project.reading.problems import Problems, Where
from penstock.values.models import (
    Check,
    Chunking,
    Dependency,
    DynamicModel,
    Fill,
    FullModel,
    Group,
    IntervalModel,
    LagWord,
    Limits,
    OnSchemaChange,
    Schedules,
    Slices,
    Source,
)
from penstock.values.models.axis import SECOND, position
from penstock.values.models.fingerprint import normalised
from penstock.values.models.model import DEFAULT_TARGET_LAG
from penstock.values.models.source_format import DELTA, SourceFormat, source_format

_CLOCK = re.compile(
    r"""(?<!['"`.])\b(now|current_timestamp|current_date|curdate|localtimestamp|unix_timestamp)\b(?!['"`])"""
)
"""What asks for the time; where the word is a name, a refresh too many finds nothing to do."""


class Built(TypedDict):
    """What is said in the same way of every model that we compute."""

    name: str
    file: str
    sql: str
    dependencies: tuple[Group, ...]
    stand_ins: Mapping[str, str]
    description: str
    tags: tuple[str, ...]
    env: Mapping[str, str]
    max_inflight: int
    cluster_by: tuple[str, ...]
    deduplicate: bool
    checks: tuple[Check, ...]
    on_schema_change: OnSchemaChange
    timeout_seconds: int
    retries: int


@dataclass(slots=True)
class Builder:
    """Makes values of drafts, parents first; every mistake goes to `problems`."""

    drafts: Mapping[str, Draft]
    settings: Settings
    problems: Problems
    axes: dict[str, str | None] = field(default_factory=dict)
    """The axis of every positioned model so far; None where it cannot be known because of a mistake."""

    def source(self, draft: Draft) -> Source:
        keys = draft.keys
        column = values.typed(keys.get("position"))
        axis = (values.typed(keys.get("axis")) or SECOND) if column else None
        if column:
            self.axes[draft.name] = axis
        self._check_source(draft, column)
        scan, completeness = keys.get("scan"), values.typed(keys.get("completeness"))
        complete: bool = completeness == "watermark" if completeness else axis == SECOND
        return Source(
            name=draft.name,
            file=draft.file.file,
            description=values.typed(keys.get("description")) or "",
            tags=values.texts(keys.get("tags")),
            env=environment(draft, self.settings),
            position=column,
            axis=axis,
            axis_declared="axis" in keys.entries,
            location=values.typed(keys.get("location")),
            format=_format(draft),
            lag=self._length(keys.get("lag"), axis, "lag", 0),
            recheck=self._length(keys.get("recheck"), axis, "recheck", 0) if "recheck" in keys.entries else None,
            completeness=("watermark" if complete else "inclusive") if column else None,
            incremental_scan_seconds=values.length(values.inside(scan, "incremental"), 10),
            full_scan_seconds=values.length(values.inside(scan, "full"), 300),
            bounds_sql=draft.file.body,
            exec=_command(keys.get("exec")),
            timeout_seconds=values.length(keys.get("timeout"), 1800),
            retries=values.number(keys.get("retries"), 3),
        )

    def interval_model(self, linked: Linked) -> IntervalModel:
        draft, keys = linked.draft, linked.draft.keys
        axis = self._axis(linked)
        self.axes[draft.name] = axis
        fill, append = keys.get("fill"), self._appends(draft)
        built = self._built(linked)
        if append:
            built["max_inflight"] = 1
        return IntervalModel(
            **built,
            position=values.typed(keys.get("position")) or "",
            axis=axis or SECOND,
            interval=self._chunking(draft, axis),
            schedules=self._schedules(draft),
            limits=self._limits(draft, axis),
            fill=Fill(
                direction="tail" if values.typed(values.inside(fill, "direction")) == "tail" else "head",
                allow_gap_skipping=values.flag(values.inside(fill, "allow_gap_skipping"), True),
                buffer=self._length(values.inside(fill, "buffer"), axis, "fill.buffer", 0),
                backfill="oldest" if values.typed(values.inside(fill, "backfill")) == "oldest" else "newest",
            ),
            update_strategy="append" if append else "replace",
            unique_key=tuple(dict.fromkeys(values.texts(keys.get("unique_key")))),
            on_retract="retract" if values.typed(keys.get("on_retract")) == "retract" else "keep",
        )

    def dynamic_model(self, linked: Linked) -> DynamicModel:
        draft, keys = linked.draft, linked.draft.keys
        self._check_whole_inputs(linked)
        share = keys.get("cardinality_threshold")
        return DynamicModel(
            **self._built(linked),
            target_lag=_target_lag(keys.get("target_lag")),
            refresh_strategy=_refresh_strategy(keys.get("refresh_strategy")),
            cardinality_threshold=0.3 if share is None else float(values.typed(share) or 0.3),
            key=values.texts(keys.get("key")),
            slices=_slices(draft),
            timed=_CLOCK.search(normalised(draft.file.body or "")) is not None,
        )

    def _check_whole_inputs(self, linked: Linked) -> None:
        """What is said of an input by its positions says nothing to a query that reads all of it."""
        for group in linked.groups:
            if len(group) > 1:
                said = f"{linked.draft.name} is dynamic and reads {group[0].model} or {group[1].model}"
                self.problems.add(group[0].where, f"{said}: alternatives are chosen by position, which it has none of")
        for member in linked.members:
            for key in ("before", "after", "optional", "finality") if member.keys is not None else ():
                if member.keys is not None and key in member.keys.entries:
                    said = f"{key!r} is about positions; {linked.draft.name} is dynamic and reads {member.model} whole"
                    self.problems.add(member.keys.at(key), said)

    def full_model(self, linked: Linked) -> FullModel:
        draft, keys = linked.draft, linked.draft.keys
        append = self._appends(draft)
        return FullModel(
            **self._built(linked),
            schedule=values.spec(keys.get("schedule")) or "",
            update_strategy="append" if append else "replace",
            unique_key=tuple(dict.fromkeys(values.texts(keys.get("unique_key")))),
            on_retract="retract" if values.typed(keys.get("on_retract")) == "retract" else "keep",
            slices=_slices(draft),
        )

    def _built(self, linked: Linked) -> Built:
        """What all models say that we compute."""
        draft, keys = linked.draft, linked.draft.keys
        return Built(
            name=draft.name,
            file=draft.file.file,
            sql=draft.file.body or "",
            dependencies=tuple(
                tuple(self._dependency(member, self.axes.get(draft.name)) for member in group)
                for group in linked.groups
            ),
            stand_ins=linked.stand_ins,
            description=values.typed(keys.get("description")) or "",
            tags=values.texts(keys.get("tags")),
            env=environment(draft, self.settings),
            max_inflight=values.number(keys.get("max_inflight"), 4),
            cluster_by=values.texts(keys.get("cluster_by")),
            deduplicate=values.flag(keys.get("deduplicate"), True),
            checks=built_checks(keys.get("checks"), draft.name, self.drafts, self.settings.databases, self.problems),
            on_schema_change=_on_schema_change(keys.get("on_schema_change")),
            timeout_seconds=values.length(keys.get("timeout"), 1800),
            retries=values.number(keys.get("retries"), 3),
        )

    def _check_source(self, draft: Draft, column: str | None) -> None:
        for key in ("axis", "lag", "completeness", "recheck") if column is None else ():
            if key in draft.keys.entries:
                self.problems.add(draft.at(key), f"{key!r} needs `position`: the column that carries the position")
        asks = draft.file.body is not None or "exec" in draft.keys.entries
        if asks and column is None and draft.sound:
            self.problems.add(draft.where, f"{draft.name} asks for its bounds, so it needs `position`")
        if draft.file.body is not None and "exec" in draft.keys.entries:
            self.problems.add(draft.at("exec"), "the bounds come from the query or from `exec`; keep one")
        location = values.typed(draft.keys.get("location"))
        if location is None and draft.sound:
            said = f"{draft.name}: a source needs a location; a table that only a catalog knows"
            self.problems.add(draft.where, f"{said} {NOT_YET}", "write `location:`")
        if location and is_relative(location) and self.settings.target.state is not None:
            target = self.settings.target.name
            said = f"the location {location!r} is relative, but the target {target!r} has state:"
            self.problems.add(
                draft.at("location"), f"{said} several machines read it, so it must be an absolute path or a URL"
            )

    def _axis(self, linked: Linked) -> str | None:
        """The axis that is written, or that of the dependencies; they must agree."""
        draft = linked.draft
        written = values.typed(draft.keys.get("axis"))
        known = [(m, axis) for m in linked.members if (axis := self.axes.get(m.model)) is not None]
        if written is not None:
            for member, axis in known:
                if axis != written:
                    said = f"{draft.name} is on the axis {written!r}, but {member.model} is on {axis!r}"
                    self.problems.add(draft.at("axis"), said)
            return written
        for member, axis in known[1:]:
            if axis != known[0][1]:
                said = f"{draft.name} reads {known[0][0].model} on the axis {known[0][1]!r}"
                self.problems.add(member.where, f"{said} and {member.model} on {axis!r}; they must agree")
        unsure = any(m.model in self.axes and self.axes[m.model] is None for m in linked.members)
        unsure = unsure or any(not self.drafts[m.model].sound for m in linked.members)
        if not known:
            return None if unsure else SECOND
        return known[0][1]

    def _chunking(self, draft: Draft, axis: str | None) -> Chunking:
        node = draft.keys.get("interval")
        if node is None:
            return Chunking(1, 1, 1)
        if isinstance(node, Scalar):
            size = self._length(node, axis, "interval", 1)
            parts = {"max": size, "min": size, "align": size}
        else:
            size = self._length(values.inside(node, "max"), axis, "interval.max", 1)
            least = self._length(values.inside(node, "min"), axis, "interval.min", size)
            align = self._length(values.inside(node, "align"), axis, "interval.align", size if least == size else 1)
            parts = {"max": size, "min": least, "align": align}
        for wrong, said in (
            (parts["max"] < 1, "interval.max must be more than 0"),
            (parts["align"] < 1, "interval.align must be more than 0"),
            (parts["min"] > parts["max"], f"interval.min {parts['min']} is more than interval.max {parts['max']}"),
            (
                parts["align"] > 0 and parts["max"] % parts["align"] != 0,
                f"interval.max {parts['max']} is not a multiple of interval.align {parts['align']}",
            ),
        ):
            if wrong:
                self.problems.add(draft.at("interval"), said)
                return Chunking(1, 1, 1)
        return Chunking(**parts)

    def _dependency(self, member: Member, axis: str | None) -> Dependency:
        keys = member.keys
        finality = values.inside(keys, "finality")
        rerun = values.typed(values.inside(keys, "on_change")) == "rerun"
        if rerun and keys is not None:
            self._check_rerun(member, keys.at("on_change"))
        return Dependency(
            model=member.model,
            before=self._length(values.inside(keys, "before"), axis, "before", 0),
            after=self._length(values.inside(keys, "after"), axis, "after", 0),
            optional=values.flag(values.inside(keys, "optional"), False),
            finality=self._length(finality, axis, "finality", 0) if finality is not None else None,
            on_change="rerun" if rerun else "ignore",
        )

    def _check_rerun(self, member: Member, where: Where) -> None:
        if member.model in self.axes:
            said = (
                f"on_change: rerun is for lookups; {member.model} has a position, so its changes reopen what they meet"
            )
            self.problems.add(where, said)
        elif not _format(self.drafts[member.model]).has_log:
            said = f"on_change: rerun needs a Delta table: nothing tells when {member.model} has changed"
            self.problems.add(where, said)

    def _appends(self, draft: Draft) -> bool:
        """Whether rows are only ever added; what is written for that must fit together."""
        keys = draft.keys
        if values.typed(keys.get("update_strategy")) != "append":
            for key in ("unique_key", "on_retract"):
                if key in keys.entries:
                    said = f"{key!r} needs `update_strategy: append`: rows that are replaced have no use for it"
                    self.problems.add(draft.at(key), said)
            return False
        if not values.texts(keys.get("unique_key")) and draft.sound:
            said = f"{draft.name} appends, so it needs `unique_key`: the columns that tell its rows apart"
            self.problems.add(draft.at("update_strategy"), said)
        # a default of the project is meant for those that can have it
        written = draft.at("max_inflight") != self.settings.defaults.lines.get("max_inflight")
        if written and values.number(keys.get("max_inflight"), 1) > 1:
            said = f"{draft.name} appends, so its attempts run one at a time: max_inflight can only be 1"
            self.problems.add(draft.at("max_inflight"), said)
        return True

    def _schedules(self, draft: Draft) -> Schedules:
        node = draft.keys.get("schedules")
        schedules = Schedules(*(values.spec(values.inside(node, key)) for key in ("forwardfill", "backfill")))
        if schedules.forwardfill == "off" and schedules.backfill == "off":
            said = f"{draft.name} would never run: at least one of forwardfill and backfill must stay on"
            self.problems.add(draft.at("schedules"), said)
        return schedules

    def _limits(self, draft: Draft, axis: str | None) -> Limits:
        node = draft.keys.get("limits")
        least, most = (self._limit(values.inside(node, key), axis, f"limits.{key}") for key in ("min", "max"))
        if least is not None and most is not None and least >= most:
            said = f"limits.min {least} must be less than limits.max {most}"
            self.problems.add(draft.at("limits"), said)
            return Limits()
        return Limits(least, most)

    def _limit(self, node: Node | None, axis: str | None, name: str) -> int | None:
        if not isinstance(node, Scalar):
            return None
        try:
            limit = position(str(node.value), axis or SECOND)
        except ValueError as error:
            self.problems.add(node.where, f"{name}: {error}")
            return None
        if limit == 0:
            self.problems.warn(node.where, f"{name}: 0 is read as no limit")
        return limit or None

    def _length(self, node: Node | None, axis: str | None, name: str, default: int) -> int:
        """A length on `axis`: units of time belong to `second` only."""
        if not isinstance(node, Scalar):
            return default
        if not isinstance(node.value, int) and axis not in (SECOND, None):
            said = f"{name}: {node.raw!r} is a time, but the axis is {axis!r}; write a number of positions"
            self.problems.add(node.where, said)
            return default
        length = values.length(node, default)
        if length > MAX_SECONDS and axis in (SECOND, None):
            self.problems.add(node.where, f"{name}: {node.raw} seconds is too long; {MAX_SECONDS} are the most")
            return default
        return length

    def check_bounded(self, linked: Linked, model: IntervalModel) -> None:
        """Without a positioned input nothing says where the data starts and ends."""
        bounding = any(
            self._bounds(group, dependencies)
            for group, dependencies in zip(linked.groups, model.dependencies, strict=True)
        )
        unsure = any(not self.drafts[member.model].sound for member in linked.members)
        if bounding or unsure or (model.limits.min is not None and model.limits.max is not None):
            return
        said = f"{model.name} reads nothing that has a position, so nothing says where it starts and ends"
        self.problems.add(linked.draft.where, f"{said}; set limits.min and limits.max")

    def _bounds(self, group: Members, dependencies: tuple[Dependency, ...]) -> bool:
        return all(member.model in self.axes for member in group) and not any(d.optional for d in dependencies)


def _slices(draft: Draft) -> Slices:
    keys = draft.keys
    return Slices(
        allowed=values.flag(keys.get("allow_parallel_refresh"), True),
        threshold=values.number(keys.get("parallel_threshold"), 10_000_000),
        most=values.number(keys.get("max_parallelism"), 16),
    )


def _target_lag(node: Node | None) -> int | LagWord:
    match values.typed(node):
        case "downstream" | "on_upstream" | "manual" as word:
            return word
        case _:
            return values.length(node, DEFAULT_TARGET_LAG)


def _refresh_strategy(node: Node | None) -> Literal["auto", "affected_keys", "full", "incremental"]:
    match values.typed(node):
        case "affected_keys" | "full" | "incremental" as strategy:
            return strategy
        case _:
            return "auto"


def _format(draft: Draft) -> SourceFormat:
    return source_format(values.typed(draft.keys.get("format")) or DELTA.name)


def _command(node: Node | None) -> tuple[str, ...] | None:
    if isinstance(node, Scalar):
        return tuple(shlex.split(node.raw))
    return values.texts(node) or None


def _on_schema_change(node: Node | None) -> OnSchemaChange:
    match values.typed(node):
        case "fail":
            return "fail"
        case "rebuild":
            return "rebuild"
        case _:
            return "add_columns"
