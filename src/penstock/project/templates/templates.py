"""What does a template say, and what text does it make?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from penstock.project.templates.outline import Outline
from penstock.project.templates.plain import PlainTemplate, plain_template


def rendered(source: str, names: Mapping[str, object]) -> str:
    """`source` as text; whatever goes wrong is a TemplateProblem."""
    plain = _plain(source)
    text = None if plain is None else plain.text(names)
    if text is None:
        from penstock.project.templates import jinja  # noqa: PLC0415  # most templates only print, and need no Jinja

        return jinja.rendered(source, names)
    return text


def outline(source: str) -> Outline:
    plain = _plain(source)
    if plain is None:
        from penstock.project.templates import jinja  # noqa: PLC0415  # as above

        return jinja.outline(source)
    return plain.outline


def names_used(source: str) -> frozenset[str]:
    """The names the template takes from outside, in whatever branch they stand."""
    return outline(source).names


@lru_cache(maxsize=4096)
def _plain(source: str) -> PlainTemplate | None:
    return plain_template(source)
