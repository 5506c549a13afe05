"""Which models does each model read?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from penstock.project.drafts import Draft
from penstock.project.keys import values
from penstock.project.keys.names import UnresolvedName, resolve
from penstock.project.keys.settings import Settings
from penstock.project.reading.documents import Items, Node, Scalar, Table
from penstock.project.reading.problems import Problems, Where
from penstock.project.templates import templates
from penstock.project.templates.context import TemplateContext
from penstock.project.templates.lookups import TemplateProblem, undefined
from penstock.project.templates.names import names_in_models
from penstock.project.templates.rendering import references
from penstock.values.intervals import Interval
from penstock.values.models.axis import SECOND
from penstock.values.tasks import LANES

TRIAL_BOUNDS = (Interval(0, 86_400), Interval(1_767_225_600, 1_767_312_000))
"""Two intervals that every template is tried with before it is believed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One dependency, with the keys that were written for it."""

    model: str
    where: Where
    keys: Table | None = None


Members = tuple[Member, ...]
Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Linked:
    """A model and what it reads."""

    draft: Draft
    groups: tuple[Members, ...]
    stand_ins: Mapping[str, str]
    """A disabled member of an OR group, and a member of that group which is left."""
    readable: bool
    """False: its template or a dependency is wrong, which is already reported."""

    @property
    def members(self) -> Members:
        return tuple(member for group in self.groups for member in group)


def body_place(draft: Draft, line: int) -> Where:
    """Line `line` of the model's query, as a line of its file."""
    last = draft.file.body_line + (draft.file.body or "").count("\n")
    return Where(draft.file.file, min(draft.file.body_line + line - 1, last))


class Linker:
    """Finds the dependencies of every model; what cannot be found goes to `problems`."""

    def __init__(self, drafts: Mapping[str, Draft], settings: Settings, problems: Problems) -> None:
        self.drafts, self.settings, self.problems = drafts, settings, problems
        self.positions = {name: values.typed(draft.keys.get("position")) for name, draft in drafts.items()}

    def linked(self) -> dict[str, Linked]:
        """Every enabled model that is no source, parents before children; models in a cycle are left out."""
        links = {
            name: self._link(draft) for name, draft in self.drafts.items() if draft.enabled and draft.type != "source"
        }
        return {name: links[name] for name in self._ordered(links)}

    def _link(self, draft: Draft) -> Linked:
        before = self.problems.count
        groups = [group for group in self._declared(draft) if group]
        readable, called = self._called(draft)
        for text, where in called:
            model = self._resolved(draft, text, where)
            if model is not None and not any(model == member.model for group in groups for member in group):
                groups.append((Member(model, where),))
        enabled = tuple(self._enabled(draft, group) for group in groups)
        stand_ins = {
            member.model: left[0].model
            for group, left in zip(groups, enabled, strict=True)
            for member in group
            if left and member not in left
        }
        readable = readable and self.problems.count == before
        return Linked(draft, tuple(group for group in enabled if group), stand_ins, readable)

    def _declared(self, draft: Draft) -> Iterator[Members]:
        node = draft.keys.get("dependencies")
        for item in node.items if isinstance(node, Items) else ():
            members = item.items if isinstance(item, Items) else (item,)
            if isinstance(item, Items) and not members:
                self.problems.add(item.where, "an OR group needs at least one model")
            read = (self._member(draft, member) for member in members)
            yield tuple(member for member in read if member is not None)

    def _member(self, draft: Draft, node: Node) -> Member | None:
        keys = node if isinstance(node, Table) else None
        text = values.typed(node if isinstance(node, Scalar) else values.inside(node, "model"))
        model = self._resolved(draft, text, node.where) if text else None
        return Member(model, node.where, keys) if model else None

    def _resolved(self, draft: Draft, text: str, where: Where) -> str | None:
        try:
            model = resolve(text, self.drafts, self.settings.databases)
        except UnresolvedName as error:
            self.problems.add(where, f"{draft.name} depends on {text!r}, but {error}")
            return None
        if model == draft.name:
            self.problems.add(where, f"{draft.name} depends on itself")
            return None
        return model

    def _called(self, draft: Draft) -> tuple[bool, list[tuple[str, Where]]]:
        """The names given to `ref()`: those in the text, whatever branch they stand in, then computed ones."""
        body = draft.file.body
        if body is None or not draft.file.readable:
            return False, []
        try:
            outline = templates.outline(body)
            called: dict[str, Where] = {}
            for text, line in outline.calls("ref"):
                called.setdefault(text, body_place(draft, line))
            known = names_in_models()
            unknown = sorted(outline.names - known)
            for name in unknown:
                self.problems.add(body_place(draft, outline.lines[name]), undefined(name, known))
            if outline.constants("ref") is None and not unknown:
                self._computed(draft, body, called)
        except TemplateProblem as problem:
            self.problems.add(body_place(draft, problem.line), problem.message)
            return False, []
        return not unknown, list(called.items())

    def _computed(self, draft: Draft, body: str, called: dict[str, Where]) -> None:
        """What `ref()` is called with in trials, where the text alone does not say."""
        context = self._trial_context(draft)
        for bounds in TRIAL_BOUNDS:
            for lane in LANES:
                for text in references(body, context, bounds, lane):
                    called.setdefault(text, body_place(draft, 1))

    def _trial_context(self, draft: Draft) -> TemplateContext:
        """A context in which every model is a dependency: which ones really are is what we want to find out."""
        groups = tuple((name,) for name in self.drafts)
        return template_context(draft, self.settings, axis=SECOND, groups=groups, positions=self.positions, interval=1)

    def _enabled(self, draft: Draft, group: Members) -> Members:
        enabled = tuple(member for member in group if self.drafts[member.model].enabled)
        if len(enabled) < len(group) and not enabled:
            for member in group:
                said = f"{draft.name} depends on {member.model}, which is disabled"
                self.problems.add(member.where, said, "disable both, or list an alternative in an OR group")
        return enabled

    def _ordered(self, links: Mapping[str, Linked]) -> list[str]:
        parents = {name: {member.model for member in link.members} & links.keys() for name, link in links.items()}
        while True:
            try:
                return list(TopologicalSorter(parents).static_order())
            except CycleError as error:
                cycle: list[str] = list(reversed(error.args[1]))
                first = min(cycle)
                turned = cycle[cycle.index(first) : -1] + cycle[: cycle.index(first)] + [first]
                arrows = " -> ".join(turned)
                where = next((m.where for m in links[first].members if m.model == turned[1]), links[first].draft.where)
                self.problems.add(where, f"these models depend on each other: {arrows}")
                parents = {name: names - set(cycle) for name, names in parents.items() if name not in cycle}


def template_context(
    draft: Draft,
    settings: Settings,
    *,
    axis: str,
    linked: Linked | None = None,
    groups: Groups,
    positions: Mapping[str, str | None],
    interval: int,
) -> TemplateContext:
    return TemplateContext(
        name=draft.name,
        position=positions.get(draft.name),
        axis=axis,
        interval=interval,
        groups=groups,
        positions=positions,
        databases=settings.databases,
        env=environment(draft, settings),
        vars=settings.vars,
        stand_ins=linked.stand_ins if linked else {},
    )


def environment(draft: Draft, settings: Settings) -> dict[str, str]:
    """The project's `env`, and over it the model's own."""
    return {**settings.env, **values.text_map(draft.keys.get("env"))}
