"""Did the meaning of a model change, so that its table must be built anew?

What counts: the text of the query without comments, spacing and letter case; the values of `env`, `var` and
`self.interval` it uses; the position, the axis, and the dependencies with their look-back, since they decide which rows
the query sees; whether rows are replaced or appended, and by which key; of a source also where it is, how it is read,
and whether its largest position is complete.

Of a dynamic table it is the query, what that reads, and a declared key; of its rows no setting decides anything else.

What does not: the size and alignment of chunks that the query does not mention (old chunks stay valid when it changes),
limits, schedules, fill, checks, layout, tags, descriptions, retries. A changed parent is not part of it either: that
its children are affected follows from the graph.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import assert_never

from penstock.values.models.model import DynamicModel, IntervalModel, Model, Source

_INSIDE = r"""(?:'[^']*'|"[^"]*"|[^'"])*?"""
_TAG_TEXT = rf"\{{\{{{_INSIDE}\}}\}}|\{{%{_INSIDE}%\}}"
_PIECES = re.compile(
    rf"""
    (?P<note>\{{\#.*?\#\}})                          # Jinja comment
  | (?P<tag>{_TAG_TEXT})
  | (?P<raw>\b[rR](?:'[^']*'|"[^"]*"))
  | (?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`)
  | (?P<line>--[^\n]*)
  | (?P<block>/\*(?!\+).*?\*/)                       # a hint, /*+ … */, is no comment
  | (?P<word>\w+)
  | (?P<mark>\S)
    """,
    re.VERBOSE | re.DOTALL,
)
_TAG = re.compile(_TAG_TEXT, re.DOTALL)
_TAG_WORDS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\w+|\S""")


def normalised(sql: str) -> str:
    """The words of a templated query: equal for texts that differ in comments, spacing and letter case only."""
    return " ".join(_words(sql)).rstrip("; ")


def fingerprint(model: Model, used: Mapping[str, object]) -> str:
    """A hash of what the model's rows depend on; `used` are the values its templates take from elsewhere."""
    facts: dict[str, object] = {"position": model.position, "axis": model.axis, "used": dict(used)}
    match model:
        case Source():
            facts |= {"location": model.location, "format": model.format.name, "exec": model.exec}
            facts |= {"sql": normalised(model.bounds_sql or ""), "completeness": model.completeness}
        case IntervalModel():
            groups = [[(d.model, d.before, d.after, d.optional) for d in group] for group in model.dependencies]
            facts |= {"sql": normalised(model.sql), "dependencies": groups}
            if model.update_strategy == "append":  # what replaces has no say here: its tables stay as they are
                facts["append"] = [sorted(model.unique_key), model.on_retract]
        case DynamicModel():
            inputs = sorted(dependency.model for dependency in model.inputs)
            facts |= {"sql": normalised(model.sql), "inputs": inputs, "key": model.key}
        case _:
            assert_never(model)
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _words(sql: str) -> Iterator[str]:
    for match in _PIECES.finditer(sql):
        piece = match[0]
        match match.lastgroup:
            case "note" | "block":
                continue
            case "line":
                # Jinja does not see SQL comments: a tag that stands in one still opens or closes a branch.
                for tag in _TAG.finditer(piece):
                    yield from _TAG_WORDS.findall(tag[0])
            case "tag":
                yield from _TAG_WORDS.findall(piece)
            case "word":
                yield piece.lower()
            case _:
                yield piece
