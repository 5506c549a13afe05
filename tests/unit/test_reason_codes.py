"""Does the page on dynamic tables explain every code that a refresh can give?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (ROOT / "src/penstock/planner/dynamic", ROOT / "src/penstock/engine/refresh")
PAGE = ROOT / "docs/dynamic-tables.md"
GIVES = {"Refused", "FullOnly", "Choice", "Reinitialize", "_cannot_tell"}
_CODE = re.compile(r"[A-Z]+(?:_[A-Z]+)*")


def test_every_code_is_on_the_page_and_the_page_has_no_others() -> None:
    told = set(re.findall(r"^\|(?: [a-z_`, ]+ \|)? `([A-Z_]+)` \|", PAGE.read_text(), re.MULTILINE))
    assert told == codes()


def test_the_codes_of_every_place_that_gives_one_are_found() -> None:
    assert codes() >= {"LIMIT", "FLOAT_KEY", "MAP_KEY", "TABLE_REPLACED", "OVER_THRESHOLD", "FOREIGN_COMMIT"}
    assert len(codes()) > 35


def codes() -> set[str]:
    return {
        code
        for room in ROOMS
        for file in room.rglob("*.py")
        for code in _codes_of(ast.parse(file.read_text(encoding="utf-8")))
    }


def _codes_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in GIVES:
                yield from _constants(node.args[:2])
            case ast.AnnAssign(target=ast.Name(id="_REFUSED"), value=ast.Dict(values=values)):
                yield from _constants(value.elts[0] for value in values if isinstance(value, ast.Tuple))
            case ast.FunctionDef(name="unfit_for_key"):
                yield from _constants(ast.walk(node))
            case ast.Assign(targets=[ast.Name(id="Code")]):
                yield from _constants(ast.walk(node))


def _constants(nodes: object) -> Iterator[str]:
    assert hasattr(nodes, "__iter__")
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _CODE.fullmatch(node.value):
            yield node.value
