"""Is this query harmless, whoever typed it: one SELECT that runs no program and reads only the given views?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.spark.allowed_classes import EXPRESSIONS, PLANS, ROW_MAKERS
from penstock.errors import UsageError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

MOST_ELEMENTS = 1_000_000
"""What a query may make out of nothing: elements of an array, characters of a text, rows of a range."""
_CATALYST = "org.apache.spark.sql.catalyst."
_VIEW = f"{_CATALYST}plans.logical.View"
_RANGE = f"{_CATALYST}plans.logical.Range"
_WITH = f"{_CATALYST}plans.logical.UnresolvedWith"
_ROW_MAKER = f"{_CATALYST}analysis.UnresolvedTableValuedFunction"
_FUNCTION = f"{_CATALYST}analysis.UnresolvedFunction"
_SUBQUERIES = frozenset(
    f"{_CATALYST}expressions.{name}" for name in ("Exists", "LateralSubquery", "ListQuery", "ScalarSubquery")
)
_SIZES = {
    f"{_CATALYST}expressions.ArrayRepeat": 1,
    f"{_CATALYST}expressions.StringRepeat": 1,
    f"{_CATALYST}expressions.StringSpace": 0,
    f"{_CATALYST}expressions.StringLPad": 1,
    f"{_CATALYST}expressions.StringRPad": 1,
    f"{_CATALYST}expressions.BinaryPad": 2,
}
"""Which argument says how large the result gets."""
_SEQUENCE = f"{_CATALYST}expressions.Sequence"
_INLINE = f"{_CATALYST}analysis.UnresolvedInlineTable"
_GROWING = frozenset({"array_repeat", "lpad", "repeat", "rpad", "sequence", "space"})
"""Functions of these, by the names that they are called by."""
_DAY = 86_400_000_000
_HINT = "a query is one SELECT over the project's tables; it runs no program and reads nothing else"


def permitted(spark: SparkSession, sql: str, views: frozenset[str]) -> DataFrame:
    """The frame of a SELECT in which everything is known to be harmless; a UsageError names what is not.

    Checked as it was written, because analysis already opens tables and computes constants, and as it was analysed,
    because only then it is sure what a name means. The plan that was checked is the one that runs.
    """
    from pyspark.sql import DataFrame

    session, jvm = spark._jsparkSession, spark._jvm
    assert jvm is not None  # noqa: S101
    classic = jvm.org.apache.spark.sql.classic
    rules = _Rules(spark, frozenset(view.lower() for view in views))
    classic.SparkSession.setActiveSession(session)  # parsing heeds the settings of the active session
    try:
        parsed = session.sessionState().sqlParser().parsePlan(sql)
        rules.walk(parsed)
        skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        analysed = session.sessionState().executePlan(parsed, skip).analyzed()
        rules.walk(analysed)
        return DataFrame(classic.Dataset.ofRows(session, analysed), spark)
    finally:
        classic.SparkSession.clearActiveSession()


@dataclass(frozen=True, slots=True)
class _Rules:
    spark: SparkSession
    views: frozenset[str]

    def walk(self, plan: JavaObject) -> None:
        """Look at every node and expression below `plan`, including queries inside of expressions.

        What is inside comes first: to tell how large a result gets, its arguments may have to be computed.
        """
        for node, name, is_plan in reversed(list(self._all(plan))):
            if is_plan:
                self._check_plan(node, name)
            else:
                self._check_expression(node, name)

    def _all(self, plan: JavaObject) -> Iterator[tuple[JavaObject, str, bool]]:
        """Every node with its class and whether it is a plan, before what is inside of it."""
        waiting: list[tuple[JavaObject, bool]] = [(plan, True)]
        while waiting:
            node, is_plan = waiting.pop()
            name = str(node.getClass().getName())
            if name == _VIEW and self._is_ours(node):
                continue
            yield node, name, is_plan
            if is_plan:
                waiting += ((inner, False) for inner in _each(node.expressions()))
                waiting += ((inner, True) for inner in _each(node.innerChildren() if name == _WITH else ()))
            elif name in _SUBQUERIES:
                waiting.append((node.plan(), True))
            waiting += ((inner, is_plan) for inner in _each(node.children()))

    def _is_ours(self, view: JavaObject) -> bool:
        """A view that was made for this query; what is in it is not the asker's."""
        return (
            bool(view.isTempViewStoringAnalyzedPlan()) and str(view.desc().identifier().table()).lower() in self.views
        )

    def _check_plan(self, node: JavaObject, name: str) -> None:
        if name not in PLANS:
            raise _refused(str(node.nodeName()), name)
        if name == _ROW_MAKER:
            wanted = str(node.name().last()).lower()
            if wanted not in ROW_MAKERS:
                raise _refused(wanted, "a function in place of a table")
        if name == _RANGE:
            _bounded(int(str(node.numElements())), "range")
        if name == _INLINE:
            self._check_inline(node)

    def _check_inline(self, table: JavaObject) -> None:
        """VALUES are computed while they are analysed, before their size can be checked."""
        waiting = list(_each(table.expressions()))
        while waiting:
            node = waiting.pop()
            called = str(node.nameParts().last()).lower() if str(node.getClass().getName()) == _FUNCTION else ""
            if called in _GROWING:
                raise _refused(called, "in VALUES")
            waiting += _each(node.children())

    def _check_expression(self, node: JavaObject, name: str) -> None:
        if name not in EXPRESSIONS:
            raise _refused(str(node.prettyName()), name)
        if name == _FUNCTION:
            self._check_function(node)
        elif name in _SIZES:
            size = _constant(_nth(node, _SIZES[name]))
            if isinstance(size, int):
                _bounded(size, str(node.prettyName()))
        elif name == _SEQUENCE:
            _bounded(_length(node), "sequence")

    def _check_function(self, node: JavaObject) -> None:
        """What a name stands for, by Spark's own register; a name that it does not have is refused by the analysis."""
        jvm = self.spark._jvm
        assert jvm is not None  # noqa: S101
        option = jvm.scala.Option.apply
        wanted = str(node.nameParts().last()).lower()
        name = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(wanted, option("builtin"), option("system"))
        info = self.spark._jsparkSession.sessionState().functionRegistry().lookupFunction(name)
        if info.isDefined():
            stands_for = str(info.get().getClassName())
            if stands_for not in EXPRESSIONS:
                raise _refused(wanted, stands_for)


def _refused(what: str, name: str) -> UsageError:
    plain = name.rpartition(".")[2].rstrip("$")
    return UsageError(f"a query may not use {what}" + ("" if plain == what else f" ({plain})"), hint=_HINT)


def _bounded(size: int, what: str) -> None:
    if size > MOST_ELEMENTS:
        raise UsageError(
            f"{what} would make {size:,} elements, a query may make {MOST_ELEMENTS:,}", hint="ask for a smaller range"
        )


def _each(nodes: JavaObject | tuple[()]) -> Iterator[JavaObject]:
    if not isinstance(nodes, tuple):
        for number in range(nodes.size()):
            yield nodes.apply(number)


def _nth(node: JavaObject, number: int) -> JavaObject:
    return node.children().apply(number)


def _constant(node: JavaObject) -> object:
    """The value of an expression that depends on no row; None when it does, or when only the run can tell."""
    from penstock.engine.spark.failures import is_spark_error

    try:
        return node.eval(None) if node.foldable() else None
    except Exception as error:
        if not is_spark_error(error):
            raise
        return None


def _length(sequence: JavaObject) -> int:
    """How many elements a sequence of constants has, about."""
    values = [_constant(inner) for inner in _each(sequence.children())]
    start, stop = values[:2]
    if not isinstance(start, int) or not isinstance(stop, int):
        return 0
    unit = _DAY if sequence.children().apply(0).dataType().typeName() == "date" else 1
    step = _step(sequence, values[2]) if len(values) > 2 else unit
    return abs(stop - start) * unit // max(1, abs(step)) + 1


def _step(sequence: JavaObject, value: object) -> int:
    """The step in the unit of the sequence: whole numbers as they are, intervals in microseconds."""
    kind = str(_nth(sequence, 2).dataType().typeName())
    if isinstance(value, int):
        return value * 28 * _DAY if "year" in kind or "month" in kind else value
    if value is None:
        return 1
    return abs(int(value.months)) * 28 * _DAY + abs(int(value.days)) * _DAY + abs(int(value.microseconds))  # type: ignore[attr-defined]
