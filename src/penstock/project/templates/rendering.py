"""What SQL does a model run for one interval, and what does a source ask for its bounds?"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.project.keys.names import UnresolvedName, resolve
from penstock.project.templates.context import ChunkQuery, Ref, RefUse, ScanContext, ScanQuery, TemplateContext
from penstock.project.templates.lookups import Mistake
from penstock.project.templates.names import values_given
from penstock.values.intervals import Interval

PLACEHOLDER_BOUNDS = Interval(3_905_718_264_530_917_000, 6_402_915_873_061_428_000)
"""The bounds in a text that many chunks share: their own edges are put in the places where these are found."""


class Inputs:
    """A `Ref` for the engine: each different use is the temporary view `penstock_in_<its place in uses>`."""

    def __init__(self) -> None:
        self.uses: list[RefUse] = []

    def __call__(self, use: RefUse) -> str:
        if use not in self.uses:
            self.uses.append(use)
        return f"`penstock_in_{self.uses.index(use)}`"


def render_model(
    sql: str,
    context: TemplateContext,
    bounds: Interval,
    *,
    choices: Sequence[str],
    ref: Ref,
    task_start: int,
    lane: str,
) -> str:
    """The query of one interval. `choices` is the member used of each dependency group."""

    def chosen(name: str, all: bool = False) -> str:  # noqa: A002  # the users' word
        model = _resolved(name, context)
        for group, choice in zip(context.groups, choices, strict=True):
            if model in group:
                return ref(RefUse(choice or model, all, absent=not choice))
        raise Mistake(f"ref({name!r}) is not among the dependencies of {context.name}")

    return _rendered(sql, ChunkQuery(context, chosen, bounds, task_start, lane))


def render_whole(sql: str, context: TemplateContext, ref: Ref) -> str:
    """The query of a table that has no intervals: every input is read whole."""

    def chosen(name: str, all: bool = True) -> str:  # noqa: A002  # the users' word
        return ref(RefUse(_resolved(name, context), all=True))

    return _rendered(sql, ChunkQuery(context, chosen, Interval(0, 1), 0, "refresh"))


def references(sql: str, context: TemplateContext, bounds: Interval, lane: str) -> tuple[str, ...]:
    """The names that `ref()` is called with when the query of one interval is made, whether they exist or not."""
    called: list[str] = []

    def noted(name: str, all: bool = False) -> str:  # noqa: A002  # the users' word
        called.append(name)
        return "`penstock_in_0`"

    _rendered(sql, ChunkQuery(context, noted, bounds, 0, lane))
    return tuple(dict.fromkeys(called))


def render_scan(sql: str, context: TemplateContext, scan: ScanContext, ref: Ref) -> str:
    """The query for the bounds of a source; there only the source itself can be read."""

    def own(name: str) -> str:
        if _resolved(name, context) != context.name:
            raise Mistake(f"a bounds query reads its own table only: ref({context.name!r})")
        return ref(RefUse(context.name, all=True))

    return _rendered(sql, ScanQuery(context, own, ref(RefUse(context.name, all=True)), scan))


def _rendered(sql: str, query: ChunkQuery | ScanQuery) -> str:
    from penstock.project.templates.templates import rendered  # noqa: PLC0415  # most commands render nothing and need no Jinja

    return rendered(sql, values_given(sql, query))


def _resolved(name: str, context: TemplateContext) -> str:
    try:
        known = {*context.positions, *context.stand_ins} if context.stand_ins else context.positions
        model = resolve(name, known, context.databases)
        return context.stand_ins.get(model, model)
    except UnresolvedName as error:
        raise Mistake(f"ref({name!r}): {error}") from None
