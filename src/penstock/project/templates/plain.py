"""Which templates do nothing but print, and what do they print?

`{{ ref('db.table') }}`, `{{ bounds.start }}` and their like are nearly all that people write. Such a text is read and
filled in here, many times sooner than Jinja compiles it. Anything else, and anything that goes wrong, is Jinja's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.project.reading.limits import MAX_CHARACTERS, line_of, long_number, too_deep
from penstock.project.templates.lookups import Names
from penstock.project.templates.names import TABLE
from penstock.project.templates.outline import Outline, Use

_TEXT = r"""'[^'"\\{}\n]*'|"[^'"\\{}\n]*\""""
_PRINTED = re.compile(
    rf"(?<!\{{)\{{\{{\s*(?P<name>{'|'.join(TABLE)})(?:"
    rf"\(\s*(?P<argument>{_TEXT})\s*"
    rf"(?:,\s*(?P<key>[A-Za-z]\w*)\s*=\s*(?P<value>[Tt]rue|[Ff]alse|{_TEXT})\s*)?\)"
    r"|\.(?P<member>[A-Za-z]\w*)"
    r")?\s*\}\}",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class _Print:
    """A place in the text that is filled in."""

    name: str
    use: Use
    options: Mapping[str, object]

    def value(self, names: Mapping[str, object]) -> object:
        match names[self.name], self.use:
            case known, Use(argument=str(argument)) if callable(known):
                return known(argument, **self.options)
            case Names() as known, Use(member=str(member)):
                return known[member]
            case str(known), Use(argument=None, member=None):
                return known
            case _:
                raise TypeError(self.name)


@dataclass(frozen=True, slots=True)
class PlainTemplate:
    outline: Outline
    _pieces: tuple[str | _Print, ...]

    def text(self, names: Mapping[str, object]) -> str | None:
        """None: something is wrong with it, and Jinja says what."""
        try:
            text = "".join(piece if isinstance(piece, str) else str(piece.value(names)) for piece in self._pieces)
        except Exception:
            return None
        return text if len(text) <= MAX_CHARACTERS else None


def plain_template(source: str) -> PlainTemplate | None:
    """None: it is more than that, or not a template that anybody can read."""
    if "{%" in source or "{#" in source or "\r" in source or too_deep(source) or long_number(source):
        return None
    pieces: list[str | _Print] = []
    prints: list[_Print] = []
    at = 0
    for match in _PRINTED.finditer(source):
        if "{{" in (before := source[at : match.start()]):
            return None
        prints.append(_print(source, match))
        pieces += (before, prints[-1])
        at = match.end()
    pieces.append(source[at:])
    return None if "{{" in source[at:] else PlainTemplate(_outline(prints), tuple(pieces))


def _print(source: str, match: re.Match[str]) -> _Print:
    argument, value = match["argument"], match["value"]
    use = Use(
        line_of(source, match.start("name")),
        member=match["member"],
        argument=None if argument is None else argument[1:-1],
    )
    options = {} if value is None else {match["key"]: {"t": True, "f": False}.get(value[0].lower(), value[1:-1])}
    return _Print(match["name"], use, options)


def _outline(prints: list[_Print]) -> Outline:
    uses: dict[str, list[Use]] = {}
    for place in prints:
        uses.setdefault(place.name, []).append(place.use)
    bare = {place.name for place in prints if place.use.argument is None and place.use.member is None}
    return Outline(
        names=frozenset(uses),
        lines={name: min(use.line for use in used) for name, used in uses.items()},
        uses={name: tuple(used) for name, used in uses.items()},
        printed=frozenset(uses.keys() - bare),  # what stands alone may be anything
    )
