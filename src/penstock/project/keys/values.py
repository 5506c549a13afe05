"""What does a checked node say, as a plain value?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.project.reading.documents import Items, Node, Plain, Scalar, Table
from penstock.values.models import axis

_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)\}")


class MissingVariableError(ValueError):
    """`${NAME}` stands in a file, and the environment has no NAME."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the environment variable {name} is not set")


def typed(node: Node | None) -> str | None:
    """The scalar as it was typed."""
    return node.raw if isinstance(node, Scalar) else None


def spec(node: Node | None) -> str | None:
    """A text as it is, or a number in plain digits, however it was typed."""
    return str(node.value) if isinstance(node, Scalar) else None


def value(node: Node) -> Plain:
    return node.value if isinstance(node, Scalar) else None


def flag(node: Node | None, default: bool) -> bool:
    return node.value if isinstance(node, Scalar) and isinstance(node.value, bool) else default


def number(node: Node | None, default: int) -> int:
    return node.value if isinstance(node, Scalar) and isinstance(node.value, int) else default


def length(node: Node | None, default: int) -> int:
    """A duration in seconds, or a number as it is."""
    if not isinstance(node, Scalar):
        return default
    return node.value if isinstance(node.value, int) else axis.duration(node.raw)


def texts(node: Node | None) -> tuple[str, ...]:
    """One text or a list of them."""
    if isinstance(node, Items):
        return tuple(item.raw for item in node.items if isinstance(item, Scalar))
    return (node.raw,) if isinstance(node, Scalar) else ()


def text_map(node: Node | None) -> dict[str, str]:
    if not isinstance(node, Table):
        return {}
    return {key: item.raw for key, item in node.entries.items() if isinstance(item, Scalar)}


def table(node: Node | None) -> Table | None:
    return node if isinstance(node, Table) else None


def inside(node: Node | None, key: str) -> Node | None:
    return node.get(key) if isinstance(node, Table) else None


def variables(content: bytes) -> set[str]:
    """The names of all variables that a file may ask for."""
    return {match[2] for match in _VARIABLE.finditer(content.decode(errors="replace"))} if b"${" in content else set()


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """`text` with `${NAME}` read from the environment; `$${NAME}` stays `${NAME}`."""

    def value_of(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        if match[2] not in environ:
            raise MissingVariableError(match[2])
        return environ[match[2]]

    return _VARIABLE.sub(value_of, text)
