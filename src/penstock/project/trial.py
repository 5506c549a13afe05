"""Does each template make a query that can run, and may chunks share one?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.project.drafts import Draft
from penstock.project.keys import values
from penstock.project.keys.settings import Settings
from penstock.project.link import TRIAL_BOUNDS, Linked, body_place, template_context
from penstock.project.queries.analysis import Analysis, Facts, QueryProblem, UnpinnedTable, digest
from penstock.project.reading.problems import Problems
from penstock.project.templates import templates
from penstock.project.templates.context import RefUse, ScanContext, TemplateContext
from penstock.project.templates.lookups import TemplateProblem, undefined
from penstock.project.templates.names import names_in_scans, shows_bounds_only, varying
from penstock.project.templates.rendering import PLACEHOLDER_BOUNDS, Inputs, render_model, render_scan, render_whole
from penstock.values.models import DynamicModel, IntervalModel, Source
from penstock.values.models.axis import SECOND
from penstock.values.tasks import LANES

_SCANS = (ScanContext(True), ScanContext(False, 1, 2))


@dataclass(slots=True)
class Trial:
    """Renders and analyses queries; every mistake goes to `problems`."""

    settings: Settings
    positions: Mapping[str, str | None]
    problems: Problems
    known: Mapping[str, Analysis]
    """Analyses remembered from an earlier reading, by digest: with them the SQL parser is not even imported."""
    analyses: dict[str, Analysis] = field(default_factory=dict)

    def model(self, linked: Linked, model: IntervalModel, sound: bool) -> IntervalModel:
        """`model` with what the analysis of its query found; its interval is not `sound` when it has mistakes."""
        draft, groups = linked.draft, tuple(tuple(d.model for d in group) for group in model.dependencies)
        where = template_context(
            draft,
            self.settings,
            linked=linked,
            axis=model.axis,
            groups=groups,
            positions=self.positions,
            interval=model.interval.max,
        )
        try:
            uses = self._rendered(model, where)
        except TemplateProblem as problem:
            self.problems.add(body_place(draft, problem.line), problem.message)
            return model
        sql, inputs = uses
        texts, carriers, unshared = self._shared(model, where, (sql, inputs))
        facts = Facts(
            position=model.position,
            axis=model.axis,
            align=model.interval.align,
            input_position=self._input_position(model, inputs),
            obstacle=_obstacle(model, inputs),
            texts=texts,
            carriers=carriers,
            unshared=unshared,
        )
        try:
            analysis = self._analysed(sql, facts)
        except UnpinnedTable as problem:
            self.problems.add(body_place(draft, problem.line), problem.among(self.positions))
            return model
        except QueryProblem as problem:
            self.problems.add(body_place(draft, problem.line), problem.message)
            return model
        if sound:
            self._check_chunks(draft, model, analysis)
        return replace(model, widens=analysis.widens, widens_reason=analysis.widens_reason, tagged=analysis.tagged)

    def dynamic_model(self, linked: Linked, model: DynamicModel) -> None:
        """Its query reads every input whole, so nothing in it may depend on an interval."""
        draft, groups = linked.draft, tuple(tuple(d.model for d in group) for group in model.dependencies)
        for name in varying(templates.names_used(model.sql), "never"):
            said = f"the template uses {name!r}, which only interval models have: a dynamic table is one query over all"
            self.problems.add(body_place(draft, templates.outline(model.sql).lines[name]), f"{said} rows of its inputs")
            return
        where = template_context(
            draft, self.settings, linked=linked, axis=SECOND, groups=groups, positions=self.positions, interval=0
        )
        try:
            sql = render_whole(model.sql, where, Inputs())
            key = digest(sql, _WHOLE)
            if key not in self.known:
                from penstock.project.queries.query import check_whole  # noqa: PLC0415  # sqlglot takes 0.2 s to import

                check_whole(sql)
            self.analyses[key] = _IS_WHOLE
        except TemplateProblem as problem:
            self.problems.add(body_place(draft, problem.line), problem.message)
        except QueryProblem as problem:
            self.problems.add(body_place(draft, problem.line), problem.message)

    def source(self, draft: Draft, source: Source) -> None:
        """Tries the bounds query, if there is one, in both kinds of scan."""
        sql = source.bounds_sql
        if sql is None:
            return
        where = template_context(
            draft, self.settings, axis=source.axis or "", groups=(), positions=self.positions, interval=0
        )
        try:
            known = names_in_scans()
            unknown = sorted(templates.names_used(sql) - known)
            for name in unknown:
                self.problems.add(body_place(draft, templates.outline(sql).lines[name]), undefined(name, known))
            for scan in _SCANS if not unknown else ():
                self._bounds_checked(render_scan(sql, where, scan, Inputs()))
        except (TemplateProblem, QueryProblem) as problem:
            self.problems.add(body_place(draft, problem.line), problem.message)

    def _rendered(self, model: IntervalModel, where: TemplateContext) -> tuple[str, list[RefUse]]:
        """The first of several renderings; all of them must work."""
        first: tuple[str, list[RefUse]] | None = None
        choices = [group[0].model for group in model.dependencies]
        alike = not varying(templates.names_used(model.sql), "never")  # then each trial would be the first one again
        for bounds in TRIAL_BOUNDS[: 1 if alike else None]:
            for lane in LANES[: 1 if alike else None]:
                inputs = Inputs()
                sql = render_model(
                    model.sql, where, bounds, choices=choices, ref=inputs, task_start=bounds.end, lane=lane
                )
                first = first or (sql, inputs.uses)
        return first or ("", [])

    def _shared(
        self, model: IntervalModel, where: TemplateContext, first: tuple[str, list[RefUse]]
    ) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
        """The texts that chunks would share, what they read by position, and why there are none."""
        if (obstacle := _hidden_bounds(model.sql)) is not None:
            return (), (), obstacle
        mixed = [group for group in model.dependencies if len({self.positions.get(d.model) is None for d in group}) > 1]
        if mixed:
            return (), (), f"{mixed[0][0].model} has alternatives without a position"
        positioned: dict[str, tuple[str, ...]] = {}
        for text, uses in self._for_all_chunks(model, where, first):
            read = (n for n, use in enumerate(uses) if not use.all and self.positions.get(use.model))
            positioned[text] = tuple(f"penstock_in_{number}" for number in read)
        if len(set(positioned.values())) > 1:
            return (), (), "it reads other inputs in another lane"
        return tuple(positioned), next(iter(positioned.values())), None

    def _for_all_chunks(
        self, model: IntervalModel, where: TemplateContext, first: tuple[str, list[RefUse]]
    ) -> Iterator[tuple[str, list[RefUse]]]:
        """What stands in for the renderings of all chunks; the `first` one where they are alike."""
        names = templates.names_used(model.sql)
        if not varying(names, "never"):
            yield first
            return
        choices = [group[0].model for group in model.dependencies]
        for lane in LANES if varying(names, "never", "bounds") else LANES[:1]:
            inputs = Inputs()
            text = render_model(
                model.sql, where, PLACEHOLDER_BOUNDS, choices=choices, ref=inputs, task_start=0, lane=lane
            )
            yield text, inputs.uses

    def _analysed(self, sql: str, facts: Facts) -> Analysis:
        key = digest(sql, facts)
        if key in self.known:
            self.analyses[key] = self.known[key]
        else:
            from penstock.project.queries.query import analyse  # noqa: PLC0415  # sqlglot takes 0.2 s to import

            self.analyses[key] = analyse(sql, facts)
        return self.analyses[key]

    def _bounds_checked(self, sql: str) -> None:
        key = digest(sql, _BOUNDS)
        if key not in self.known:
            from penstock.project.queries.query import check_bounds  # noqa: PLC0415  # sqlglot takes 0.2 s to import

            check_bounds(sql)
        self.analyses[key] = Analysis(grouped=True, widens=False, widens_reason="a bounds query", grain=None)

    def _input_position(self, model: IntervalModel, uses: list[RefUse]) -> str | None:
        """The position column of the one input that is read; alternatives must agree on it."""
        read = {use.model for use in uses}
        columns = {
            self.positions.get(member.model)
            for group in model.dependencies
            if any(member.model in read for member in group)
            for member in group
        }
        return next(iter(columns)) if len(columns) == 1 and len(read) == 1 else None

    def _check_chunks(self, draft: Draft, model: IntervalModel, analysis: Analysis) -> None:
        chunk, where = model.interval, draft.at("interval")
        aligned = "align" in (table.entries if (table := values.table(draft.keys.get("interval"))) else {})
        if analysis.grouped and not chunk.strict and not aligned:
            said = "the query groups rows, so a partial chunk would overwrite a whole group with a part of it"
            self.problems.add(where, f"{said}; add interval.align, or make the interval strict (min = max)")
            return
        if analysis.grain is not None and chunk.align % analysis.grain:
            said = (
                f"{model.position} comes in steps of {analysis.grain}, but chunks start at multiples of {chunk.align}"
            )
            self.problems.add(where, f"{said}: rows would fall outside of their chunk; align must be a multiple of it")
        for name, limit in (("min", model.limits.min), ("max", model.limits.max)):
            if analysis.grouped and limit is not None and limit % chunk.align:
                said = f"limits.{name} {limit} is not a multiple of interval.align {chunk.align}"
                self.problems.add(draft.at("limits"), f"{said}, so it would cut a group of rows in two")


_WHOLE = Facts(position="", axis="", align=1, input_position=None, obstacle="a dynamic table")
_IS_WHOLE = Analysis(grouped=False, widens=False, widens_reason="a dynamic table", grain=None)
_BOUNDS = Facts(position="", axis="", align=1, input_position=None, obstacle="a bounds query")


def _obstacle(model: IntervalModel, uses: list[RefUse]) -> str | None:
    """Why chunks cannot share one query, whatever it says."""
    mentioned = varying(templates.names_used(model.sql), "never")
    if mentioned:
        return f"it mentions {mentioned[0]}"
    if len(uses) != 1:
        return f"it reads {len(uses)} inputs"
    if uses[0].all:
        return f"it reads all of {uses[0].model}"
    group = next(group for group in model.dependencies if any(d.model == uses[0].model for d in group))
    if any(d.before or d.after for d in group):
        return f"it looks beyond its own interval into {uses[0].model}"
    return f"{uses[0].model} is optional" if any(d.optional for d in group) else None


def _hidden_bounds(sql: str) -> str | None:
    """Why the places where a text depends on its chunk cannot be found in it; None when they can."""
    outline = templates.outline(sql)
    for name in varying(outline.names, "never", "task"):
        if not shows_bounds_only(name, outline):
            return f"its template does more with {name} than to print it"
    return None
