"""Which column does a name mean?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import column
from penstock.planner.dynamic.refusals import Refused


@dataclass(frozen=True, slots=True)
class Title:
    """A column under the name that the query gives it."""

    title: str
    value: exp.Expr

    @property
    def key(self) -> str:
        return self.title.lower()


@dataclass(frozen=True, slots=True)
class Relation:
    """What one item of a FROM clause shows."""

    alias: str
    titles: tuple[Title, ...]


@dataclass(slots=True)
class Scope:
    """The relations of one SELECT; `outer` are those of the SELECT around it."""

    relations: list[Relation] = field(default_factory=list)
    shown: list[Title] = field(default_factory=list)
    """What a star shows."""
    outer: Scope | None = None

    def add(self, relation: Relation) -> None:
        if any(known.alias == relation.alias for known in self.relations if relation.alias):
            raise Refused("NOT_RESOLVED", f"two relations are called {relation.alias}")
        self.relations.append(relation)
        self.shown += relation.titles

    def value(self, node: exp.Column) -> exp.Expr | None:
        """What a name means here or in the queries around; None when nothing has that name."""
        parts = [part.name for part in node.parts]
        if isinstance(node.this, exp.Star):
            raise Refused("NOT_RESOLVED", "there is a star in an expression")
        here = self._here(parts)
        if here is None and self.outer is not None:
            return self.outer.value(node)
        return here

    def _here(self, parts: list[str]) -> exp.Expr | None:
        if len(parts) > 1:
            for relation in self.relations:
                if relation.alias == parts[0].lower():
                    found = _only(relation.titles, parts[1])
                    if found is not None:
                        return _fields(found, parts[2:])
        found = _only(self.shown, parts[0])
        return None if found is None else _fields(found, parts[1:])

    def star(self, alias: str | None) -> Iterator[Title]:
        if alias is None:
            yield from self.shown
            return
        for relation in self.relations:
            if relation.alias == alias.lower():
                yield from relation.titles
                return
        raise Refused("NOT_RESOLVED", f"no relation is called {alias}")


def _only(titles: tuple[Title, ...] | list[Title], name: str) -> exp.Expr | None:
    found = [title.value for title in titles if title.key == name.lower()]
    if len(found) > 1 and any(value != found[0] for value in found[1:]):
        raise Refused("NOT_RESOLVED", f"more than one column is called {name}")
    return found[0].copy() if found else None


def _fields(value: exp.Expr, names: list[str]) -> exp.Expr:
    for name in names:
        value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
    return value


def titled(name: str, title: str) -> Title:
    return Title(title, column(name))


def only(node: exp.Expr, *names: str) -> None:
    """Refuse a clause that is not one of these."""
    odd = sorted(name for name, value in node.args.items() if value and name not in names)
    if odd:
        raise Refused("SYNTAX_UNKNOWN", f"there is no rule for {odd[0].strip('_').upper()} in {node.key.upper()}")


def renamed(titles: tuple[Title, ...], names: Sequence[str]) -> tuple[Title, ...]:
    """Under the names that an alias lists."""
    if not names:
        return titles
    if len(names) != len(titles):
        raise Refused("NOT_RESOLVED", "an alias names another number of columns than there are")
    return tuple(Title(name, title.value) for name, title in zip(names, titles, strict=True))
