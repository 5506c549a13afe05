"""Which rows of a plan changed between two states of its inputs?

One rule for each kind of node: `changed_...(node, wanted, step)` is a plan that has, over the columns `wanted`, every
row whose number differs between the two states. It may have more rows, and any row more than once: being exact is worth
its price only where it saves keys. Which columns are wanted never decides which rows changed.

`either` has every row of the old or of the new state. Neither reads the old state of an input: a row that was there is
still there, or a changed row says what it was. Only the old results of aggregates and windows, where they are asked
for, are computed from old rows.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import (
    Aggregate,
    Distinct,
    Explode,
    Filter,
    Join,
    Node,
    Nothing,
    OneRow,
    Output,
    Project,
    Scan,
    SetOperation,
    Shared,
    Union,
    Window,
    all_of,
    any_of,
    column,
    names_in,
    projected,
    same,
)
from penstock.planner.dynamic.plans.kinds import comparable_again, typed_null
from penstock.planner.dynamic.plans.placing import timed
from penstock.planner.dynamic.refusals import Refused
from penstock.planner.dynamic.rules.reach import Columns, plain_columns, reach
from penstock.planner.dynamic.rules.restricting import Listed, restricted
from penstock.planner.dynamic.rules.states import (
    CHANGES,
    Step,
    at,
    computed,
    filtered,
    matched,
    new,
    old,
    parts_together,
    together,
)


def changed(node: Node, wanted: Columns, step: Step) -> Node:
    """Every row of the plan that is not there as often as it was, over exactly the columns `wanted`."""
    inexact = sorted(wanted & step.facts.inexact)
    if inexact:
        raise Refused("FLOAT_KEY", "its rows are told apart by a result that can differ in its last digits")
    known = step.found.get((id(node), wanted))
    if known is None:
        rows = _changed(node, wanted, step)
        known = projected(rows, (name for name in node.columns if name in wanted))
        step.found[id(node), wanted] = known
    return known


def _changed(node: Node, wanted: Columns, step: Step) -> Node:  # noqa: PLR0911, PLR0912  # one line per kind of node
    match node:
        case Scan():
            return changed_relation(node, step)
        case Filter():
            return changed_filter(node, wanted, step)
        case Project():
            return changed_projection(node, wanted, step)
        case Explode():
            return changed_explosion(node, wanted, step)
        case Join(kind="inner"):
            return changed_inner_join(node, wanted, step)
        case Join(kind="left"):
            return changed_left_join(node, wanted, step)
        case Join(kind="full"):
            return changed_full_join(node, wanted, step)
        case Join():
            return changed_semi_join(node, wanted, step)
        case Union():
            return changed_union(node, wanted, step)
        case Distinct():
            return changed_distinct(node, wanted, step)
        case SetOperation():
            return changed_set_operation(node, wanted, step)
        case Aggregate():
            return changed_groups(node, wanted, step)
        case Window():
            return changed_window(node, wanted, step)
        case OneRow() | Nothing() | Shared():
            return Nothing(node.columns)


def either(node: Node, wanted: Columns, step: Step) -> Node:
    """Every row of the old or of the new state."""
    now = projected(new(node, step.now), (name for name in node.columns if name in wanted))
    return together(now, changed(node, wanted, step))


def changed_relation(node: Scan, step: Step) -> Node:
    """What its change feed lists, as rows before and after."""
    if node.source not in step.changed:
        return Nothing(node.columns)
    return replace(node, relation=f"{node.source}{CHANGES}")


def changed_filter(node: Filter, wanted: Columns, step: Step) -> Node:
    """Changed rows that pass, and rows that pass at one of the two times only.

    A condition on columns that cost more than it saves is left out: then rows that do not pass count as changed.
    """
    reads = names_in(node.condition)
    kept = reads <= reach(node.child, wanted) and not reads & step.facts.inexact
    below = changed(node.child, wanted | reads if kept else wanted, step)
    if not timed(node.condition):
        return filtered(below, node.condition) if kept else below
    then, now = at(node.condition, step.then), at(node.condition, step.now)
    passed = filtered(below, any_of([then, now])) if kept else below
    return together(projected(passed, sorted(wanted)), projected(time_flips(node, then, now, step), sorted(wanted)))


def time_flips(node: Filter, then: exp.Expr, now: exp.Expr, step: Step) -> Node:
    """Rows for which a condition holds at one of two times, and does not at the other."""
    if not step.time_passed:
        return Nothing(node.columns)
    if names_in(node.condition) & step.facts.inexact:
        raise Refused("FLOAT_KEY", "it compares a result that can differ in its last digits with the current time")
    appeared, gone = all_of([now, _fails(then)]), all_of([then, _fails(now)])
    return filtered(new(node.child, step.now), any_of([appeared, gone]))


_OPPOSITE: dict[type[exp.Expr], type[exp.Binary]] = {exp.GT: exp.LTE, exp.GTE: exp.LT, exp.LT: exp.GTE, exp.LTE: exp.GT}


def _fails(condition: exp.Expr) -> exp.Expr:
    """Holds where the condition does not; a comparison stays one, so that files can be skipped by it."""
    opposite = _OPPOSITE.get(type(condition))
    if opposite is not None and (not names_in(condition.this) or not names_in(condition.expression)):
        return opposite(this=condition.this.copy(), expression=condition.expression.copy())
    return exp.Not(this=exp.Anonymous(this="coalesce", expressions=[condition.copy(), exp.false()]))


def changed_projection(node: Project, wanted: Columns, step: Step) -> Node:
    """The same of changed rows; where the time is asked for, at both times, and of rows that come out different."""
    outputs = tuple(output for output in node.outputs if output.name in wanted)
    clocks = [output.value for output in node.outputs if timed(output.value)]
    reads = names_in(*(output.value for output in outputs))
    below = changed(node.child, reads, step)
    if not clocks:
        return computed(below, outputs)
    parts = [below]
    if step.time_passed:
        differs = any_of([exp.Not(this=same(at(clock, step.then), at(clock, step.now))) for clock in clocks])
        rows = filtered(new(node.child, step.now), differs)
        parts.append(projected(rows, (name for name in node.child.columns if name in reads)))
    rows = together(*parts)
    return together(*(computed(rows, _at(outputs, moment)) for moment in dict.fromkeys((step.then, step.now))))


def _at(outputs: tuple[Output, ...], moment: object) -> tuple[Output, ...]:
    return tuple(Output(output.name, at(output.value, moment)) for output in outputs)  # type: ignore[arg-type]


def changed_explosion(node: Explode, wanted: Columns, step: Step) -> Node:
    below = changed(node.child, (wanted - set(node.made)) | names_in(node.generator), step)
    return below if isinstance(below, Nothing) else replace(node, child=below)


def changed_union(node: Union, wanted: Columns, step: Step) -> Node:
    """The changed rows of all parts."""
    return _by_place(node.parts, node, wanted, step)


def changed_set_operation(node: SetOperation, wanted: Columns, step: Step) -> Node:
    """Whether a row is in the result, and how often, hangs on equal rows of both sides."""
    return _by_place((node.left, node.right), node, wanted, step)


def _by_place(parts: tuple[Node, ...], node: Union | SetOperation, wanted: Columns, step: Step) -> Node:
    places = [place for place, name in enumerate(node.names) if name in wanted]
    rows = []
    for part in parts:
        own = tuple(part.columns[place] for place in places)
        rows.append(projected(changed(part, frozenset(own), step), own))
    return parts_together(node, parts, rows, step)


def changed_distinct(node: Distinct, wanted: Columns, step: Step) -> Node:
    """A row can appear or vanish only with one of its duplicates."""
    return changed(node.child, wanted, step)


def join_conditions(node: Join, step: Step) -> tuple[exp.Expr, ...]:
    """The conditions by which rows find their changed partners.

    Those that need results of aggregates are left out, unless nothing else ties the sides together: more partners only
    mean more keys.
    """
    cheap = plain_columns(node.left) | plain_columns(node.right)
    known = tuple(part for part in node.condition if names_in(part) <= cheap)
    if any(names_in(part) & set(node.left.columns) and names_in(part) & set(node.right.columns) for part in known):
        return known
    return tuple(part for part in node.condition if not names_in(part) & step.facts.inexact)


def changed_inner_join(node: Join, wanted: Columns, step: Step) -> Node:
    """Changed rows of one side with all rows that the other side has or had."""
    conditions = join_conditions(node, step)
    if wanted <= set(node.left.columns):
        return together(changed(node.left, wanted, step), partners(node.left, node.right, conditions, wanted, step))
    if wanted <= set(node.right.columns):
        return together(changed(node.right, wanted, step), partners(node.right, node.left, conditions, wanted, step))
    lefts, rights = _sides(node, wanted | names_in(*conditions))
    return _in_order(node, wanted, _changed_pairs(node, lefts, rights, conditions, step))


def _changed_pairs(
    node: Join, lefts: Columns, rights: Columns, conditions: tuple[exp.Expr, ...], step: Step
) -> list[Node]:
    left = matched(changed(node.left, lefts, step), either(node.right, rights, step), "inner", conditions)
    kept = _new(node.left, lefts, step)
    right = matched(kept, changed(node.right, rights, step), "inner", conditions)
    return [left, right]


def partners(left: Node, right: Node, conditions: tuple[exp.Expr, ...], wanted: Columns, step: Step) -> Node:
    """Rows of one side, as it is now, that have a changed row of the other side as partner."""
    reads = names_in(*conditions)
    rows = changed(right, reads & frozenset(right.columns), step)
    kept = _new(left, (wanted | reads) & frozenset(left.columns), step)
    found = matched(kept, rows, "semi", conditions)
    return projected(found, (name for name in left.columns if name in wanted))


def changed_left_join(node: Join, wanted: Columns, step: Step) -> Node:
    """As for an inner join, and rows that got or lost their only partner."""
    conditions = join_conditions(node, step)
    if wanted <= set(node.left.columns):
        return together(changed(node.left, wanted, step), partners(node.left, node.right, conditions, wanted, step))
    lefts, rights = _sides(node, wanted | names_in(*conditions))
    pairs = _changed_pairs(node, lefts, rights, conditions, step)
    alone = _alone(node.left, node.right, conditions, wanted, step)
    return _in_order(node, wanted, [*pairs, *alone])


def changed_full_join(node: Join, wanted: Columns, step: Step) -> Node:
    """As for a left join, for both sides."""
    conditions = join_conditions(node, step)
    lefts, rights = _sides(node, wanted | names_in(*conditions))
    pairs = _changed_pairs(node, lefts, rights, conditions, step)
    left = _alone(node.left, node.right, conditions, wanted, step)
    right = _alone(node.right, node.left, conditions, wanted, step)
    return _in_order(node, wanted, [*pairs, *left, *right])


def _alone(left: Node, right: Node, conditions: tuple[exp.Expr, ...], wanted: Columns, step: Step) -> list[Node]:
    """Rows of a side as they look without a partner, where that may have changed."""
    own = (wanted | names_in(*conditions)) & frozenset(left.columns)
    missing = sorted(wanted & frozenset(right.columns))
    rows = [changed(left, own, step), partners(left, right, conditions, own, step)]
    return [_without_partner(part, right, missing, step) for part in rows if not isinstance(part, Nothing)]


def _without_partner(rows: Node, right: Node, missing: list[str], step: Step) -> Node:
    """The rows with NULL in the columns of the other side, typed as they are there."""
    nulls = {name: typed_null(step.facts.kinds.get(name)) for name in missing}
    if None not in nulls.values():
        known = tuple(Output(name, value) for name, value in nulls.items() if value is not None)
        return Project(rows, (*(Output(name, column(name)) for name in rows.columns), *known))
    return Join(rows, projected(Filter(new(right, step.now), exp.false()), missing), "left", (exp.false(),))


def changed_semi_join(node: Join, wanted: Columns, step: Step) -> Node:
    """EXISTS, IN and their negations: changed rows, and rows that have a changed row as partner."""
    conditions = join_conditions(node, step)
    return together(changed(node.left, wanted, step), partners(node.left, node.right, conditions, wanted, step))


def changed_groups(node: Aggregate, wanted: Columns, step: Step) -> Node:
    """The groups of changed rows; with their results, as they are and as they were."""
    if wanted <= {key.name for key in node.keys}:
        return touched_groups(node, wanted, step)
    if not node.keys:
        return _changed_totals(node, wanted, step)
    keys = _shared(touched_groups(node, frozenset(key.name for key in node.keys), step), step)
    if keys is None:
        return Nothing(node.columns)
    return together(*_both_states(node, keys, tuple(key.name for key in node.keys), wanted, step))


def touched_groups(node: Aggregate, wanted: Columns, step: Step) -> Node:
    """The keys of the groups that have changed rows."""
    keys = tuple(key for key in node.keys if key.name in wanted)
    below = changed(node.child, names_in(*(key.value for key in keys)), step)
    if node.sets is None:
        return computed(below, keys)
    parts = []
    for own in node.sets:
        there = {node.keys[place].name for place in own}
        parts.append(computed(below, tuple(key if key.name in there else _left_out(key, step) for key in keys)))
    return together(*parts)


def _left_out(key: Output, step: Step) -> Output:
    """NULL of the type of a key that a grouping set leaves out."""
    null = typed_null(step.facts.kinds.get(key.name))
    return Output(key.name, exp.null() if null is None else null)


def _changed_totals(node: Aggregate, wanted: Columns, step: Step) -> Node:
    """The one row of an aggregate without keys before and after; if both are known to be equal, neither."""
    names = tuple(name for name in node.columns if name in wanted)
    if isinstance(changed(node.child, frozenset(), step), Nothing):
        return Nothing(names)
    now, then = new(node, step.now), old_rows(node, step)
    if all(comparable_again(name, step.facts) for name in node.columns):
        # all columns are compared, and not just the wanted ones: a row changed if any of them did
        appeared = SetOperation(now, then, "except", False, node.columns)
        gone = SetOperation(then, now, "except", False, node.columns)
        now, then = appeared, gone
    return together(projected(now, names), projected(then, names))


def changed_window(node: Window, wanted: Columns, step: Step) -> Node:
    """All rows of the partitions of changed rows, as they are or were; their results only where they are asked for."""
    partition = frozenset(node.partition)
    if wanted <= partition:
        return changed(node.child, wanted, step)
    keys = _shared(changed(node.child, partition, step), step)
    if keys is None:
        return Nothing(node.columns)
    if wanted <= set(node.child.columns):
        rows = either(node.child, wanted | partition, step)
        order = tuple(name for name in node.child.columns if name in partition)
        listed = Listed(keys, step.facts, step.names)
        return listed.semi_join(rows, {number: column(name) for number, name in enumerate(order)})
    order = tuple(name for name in node.child.columns if name in partition)
    return together(*_both_states(node, keys, order, wanted, step))


def _both_states(
    node: Aggregate | Window, keys: Shared, order: tuple[str, ...], wanted: Columns, step: Step
) -> list[Node]:
    """What the listed groups or partitions are now, and what they were."""
    values = {number: column(name) for number, name in enumerate(order)}
    listed = Listed(keys, step.facts, step.names)
    return [
        projected(restricted(state, values, listed), (name for name in node.columns if name in wanted))
        for state in (new(node, step.now), old_rows(node, step))
    ]


def old_rows(node: Aggregate | Window, step: Step) -> Node:
    """What an aggregate or a window was."""
    return old(node, step)


def _shared(keys: Node, step: Step) -> Shared | None:
    """Keys, each once, for several places; None where there are none."""
    if isinstance(keys, Nothing):
        return None
    return Shared(step.names.fresh("penstock_changed"), Distinct(keys), keys.columns)


def _new(node: Node, wanted: Columns, step: Step) -> Node:
    return projected(new(node, step.now), (name for name in node.columns if name in wanted))


def _sides(node: Join, wanted: Columns) -> tuple[Columns, Columns]:
    return wanted & frozenset(node.left.columns), wanted & frozenset(node.right.columns)


def _in_order(node: Join, wanted: Columns, parts: list[Node]) -> Node:
    """The parts with the same columns in the same order."""
    names = tuple(name for name in node.columns if name in wanted)
    there = [projected(part, names) for part in parts if not isinstance(part, Nothing)]
    return together(*there) if there else Nothing(names)
