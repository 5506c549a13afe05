"""Is this one SELECT over known tables, and what does it do with its rows?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import Dialect, exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.project.queries.analysis import Analysis, Facts, QueryProblem, UnpinnedTable
from penstock.project.queries.sharing import Share, Unshareable, shared
from penstock.project.queries.widening import widening
from penstock.project.reading.depth import reading
from penstock.project.reading.limits import LONG_NUMBER, long_number
from penstock.values.intervals import Interval

_SPARK = Dialect.get_or_raise("spark")
_TOKEN = re.compile(r"<Token .*?text: (.*?), line.*?>")
_AFTER_A_LIST = frozenset(
    {
        TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING,
        TokenType.QUALIFY, TokenType.ORDER_BY, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT,
    }
)  # fmt: skip
_STARTS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN, TokenType.VALUES})


def analyse(sql: str, facts: Facts) -> Analysis:
    """What the rendered query of an interval model is; a QueryProblem when it cannot be one."""
    with reading(sql, _refused):
        return _analysed(one_select(sql), facts)


def _analysed(tree: exp.Query, facts: Facts) -> Analysis:
    _known_tables_only(tree)
    grouped = any(True for _ in _groupings(tree))
    columns = _output(tree)
    if facts.position and columns is not None and facts.position.lower() not in columns:
        listed = ", ".join(columns)
        raise QueryProblem(
            f"the query has no column {facts.position!r}, which is the model's position; it has {listed}", 1
        )
    proof = widening(tree, facts)
    if proof.holds:
        return Analysis(grouped, True, proof.reason, proof.grain)
    why_not = _unshared(facts) if facts.texts or facts.unshared else proof.reason
    reason = "its rows carry their chunk" if why_not is None else why_not
    return Analysis(grouped, why_not is None, reason, proof.grain, tagged=why_not is None)


def _unshared(facts: Facts) -> str | None:
    """Why a query over rows that carry their chunk does not give the rows of each; None when it does."""
    if facts.unshared is not None:
        return facts.unshared
    trial = Share((Interval(0, 10), Interval(10, 20)), lambda tag: f"({tag} + 10)")
    try:
        for text in facts.texts:
            shared(text, frozenset(facts.carriers), trial)
    except Unshareable as obstacle:
        return str(obstacle)
    return None


def check_whole(sql: str) -> None:
    """The query of a dynamic table is one SELECT over known tables."""
    with reading(sql, _refused):
        _known_tables_only(one_select(sql))


def check_bounds(sql: str) -> None:
    """A bounds query is one SELECT with the columns min and max."""
    with reading(sql, _refused):
        columns = _output(one_select(sql))
    missing = [name for name in ("min", "max") if columns is not None and name not in columns]
    if missing:
        raise QueryProblem(f"a bounds query needs the columns min and max; it has no {' and no '.join(missing)}", 1)


def _refused(why: str, line: int) -> QueryProblem:
    """What is too much for the SQL parser is the author's to mend, like what it can name."""
    return QueryProblem(f"the query cannot be read: {why}", line)


def one_select(sql: str) -> exp.Query:
    """The only statement in `sql`."""
    line = long_number(sql)
    if line is not None:
        raise _refused(LONG_NUMBER, line)
    try:
        tokens = _SPARK.tokenize(sql)
    except TokenError as error:
        raise QueryProblem(f"the query cannot be read: {error}", 1) from None
    statements = [part for part in _split(tokens) if part]
    if not statements:
        raise QueryProblem("the file has no query", 1)
    first = statements[0][0]
    if first.token_type not in _STARTS:
        said = f"the query starts with {first.text.upper()!r}; a model is one SELECT"
        raise QueryProblem(f"{said}, and Penstock replaces the rows of the interval by its result", first.line)
    if len(statements) > 1:
        second = statements[1][0]
        said = f"there is a second statement ({second.text.upper()} …); a model is one SELECT"
        raise QueryProblem(f"{said}, and Penstock replaces the rows of the interval by its result", second.line)
    _no_comma_left(statements[0])
    try:
        trees = _SPARK.parser().parse(statements[0], sql)
    except ParseError as error:
        facts = error.errors[0] if error.errors else {}
        raise QueryProblem(f"not valid SQL: {_in_words(facts, error)}", int(facts.get("line") or 1)) from None
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        raise QueryProblem("a model is one SELECT", first.line)
    return tree


def _no_comma_left(tokens: list[Token]) -> None:
    """The parser takes `select a, from t`, which Spark does not."""
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type == TokenType.COMMA and (after is None or after.token_type in _AFTER_A_LIST):
            before = "the end" if after is None else repr(after.text)
            raise QueryProblem(f"not valid SQL: nothing stands between ',' and {before}", token.line)


def _in_words(facts: dict[str, object], error: ParseError) -> str:
    near = str(facts.get("highlight") or "")
    description = str(facts.get("description") or error).split(" for <class")[0].rstrip(".")
    plain = _TOKEN.sub(lambda match: repr(match[1]), description)
    return f"{plain} near {near!r}" if near and near not in plain else plain


def _split(tokens: list[Token]) -> Iterator[list[Token]]:
    part: list[Token] = []
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _known_tables_only(tree: exp.Query) -> None:
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue
        name = ".".join(part.name for part in table.parts)
        if name.startswith("penstock_in_") or name.lower() in named:
            continue
        line = int(table.this.meta.get("line") or 1)
        raise UnpinnedTable(name, line)


def _groupings(tree: exp.Query) -> Iterator[exp.Expr]:
    yield from tree.find_all(exp.Group)
    for call in tree.find_all(exp.AggFunc):
        above = call.parent
        while isinstance(above, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
            above = above.parent
        if not isinstance(above, exp.Window):
            yield call


def _output(tree: exp.Query) -> tuple[str, ...] | None:
    """The names of the columns, lower case; None when a star hides them."""
    select = tree.find(exp.Select)
    if select is None or not isinstance(tree, exp.Select):
        return None
    names = tuple(column.output_name.lower() for column in select.expressions)
    hidden = any(column.is_star or not name for column, name in zip(select.expressions, names, strict=True))
    return None if hidden else names
