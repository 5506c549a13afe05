"""Which model does a name mean?"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from penstock.project.keys.settings import Kind
from penstock.project.reading.problems import did_you_mean

_PLACEHOLDER = re.compile(r"\{\{\s*(external|transformation)\s*\}\}\.(\w+)")


class UnresolvedName(ValueError):  # noqa: N818  # becomes a ProjectError once file and line are known
    """A name that means no model, or several."""


def resolve(name: str, known: Collection[str], databases: Mapping[Kind, str]) -> str:
    """`name` as `database.table`; it may be that already, a bare table, or start with a placeholder."""
    full = substituted(name, databases)
    if full in known:
        return full
    same = sorted(model for model in known if model.split(".")[1] == full)
    if len(same) > 1:
        raise UnresolvedName(f"{name!r} means more than one table: {', '.join(same)}")
    if same:
        return same[0]
    tables = {model.split(".")[1]: model for model in known}
    near = did_you_mean(full, known) or (did_you_mean(full, tables) if "." not in full else "")
    raise UnresolvedName(f"there is no model {full!r}{near}")


def substituted(name: str, databases: Mapping[Kind, str]) -> str:
    """`name` with `{{external}}` or `{{transformation}}` replaced."""
    match = _PLACEHOLDER.fullmatch(name)
    if match is None:
        return name
    kind: Kind = "external" if match[1] == "external" else "transformation"
    if kind not in databases:
        raise UnresolvedName(f"{name!r} needs databases.{kind} in penstock.yml")
    return f"{databases[kind]}.{match[2]}"
