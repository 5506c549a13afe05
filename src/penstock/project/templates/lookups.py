"""How does a template look a name up, and what does the error say if there is none? The names are in `names.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.project.reading.problems import did_you_mean

MAX_STEPS = 100_000
"""What one rendering may do: loops, calls and `range()` count."""


_OF_DBT = {
    "source": "write ref('database.table'): a source is a model, too",
    "is_incremental": "leave it out: ref() reads the rows of the interval, and they replace the stored ones",
    "this": "a query reads its inputs with ref(), not its own table",
    "config": "write keys such as interval between two lines --- above the query",
}
"""What to write in place of a name that dbt has."""


def undefined(name: str, known: Iterable[str]) -> str:
    """The mistake of a name that nobody defined."""
    said = f"the template uses {name!r}, which is undefined"
    return f"{said}; {_OF_DBT[name]}" if name in _OF_DBT else f"{said}{did_you_mean(name, known)}"


class Mistake(Exception):  # noqa: N818  # becomes a TemplateProblem once its line is known
    """What a name says to a template that uses it wrongly."""


class TemplateProblem(Exception):  # noqa: N818  # becomes a ProjectError once file and line are known
    """A template that cannot be rendered; the line counts from the template's first."""

    def __init__(self, message: str, line: int) -> None:
        self.message, self.line = message, line
        super().__init__(message)


class Names:
    """A few names in a template; a wrong one is an error that says which are there."""

    __slots__ = ("_label", "_values")
    _label: str
    _values: Mapping[str, object]

    def __init__(self, label: str, values: Mapping[str, object]) -> None:
        self._label, self._values = label, values

    def __getitem__(self, name: str) -> object:
        if name not in self._values:
            known = ", ".join(self._values) or "nothing"
            raise Mistake(
                f"{self._label} has no {name!r}{did_you_mean(str(name), self._values) or f'; it has {known}'}"
            )
        value = self._values[name]
        if isinstance(value, Missing):
            raise Mistake(value.why)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __str__(self) -> str:
        raise Mistake(f"{self._label} is not a value; use one of {', '.join(self._values)}")


class Missing:
    """A name that exists, but not here."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


class Span(Names):
    """`bounds`, and `range`, which is Jinja's counting function too."""

    __slots__ = ("_left",)
    _left: int

    def __init__(self, label: str, values: Mapping[str, object]) -> None:
        super().__init__(label, values)
        self._left = MAX_STEPS

    def __call__(self, *arguments: int) -> range:
        steps = range(*arguments)
        # Counted over the whole rendering, or nested loops would multiply a limit that each of them keeps.
        self._left -= len(steps)
        if self._left < 0:
            raise Mistake(f"range() counts further than {MAX_STEPS} steps in one template")
        return steps
