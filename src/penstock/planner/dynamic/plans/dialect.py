"""How is Spark's SQL read so that every function stays as it was written?"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser


class Verbatim(Spark):
    """Spark's SQL without translation: a function is its name and its arguments."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            name: parser
            for name, parser in SparkParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            name: parser for name, parser in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name == "CASE"
        }
