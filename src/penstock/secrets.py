"""Which values must nobody read, wherever a text goes?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_NAMES = re.compile(r"secret|passw|pwd|token|key(?!tab|word)|credential|signature|sas(?![a-z])", re.IGNORECASE)
_ADDRESS = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_SHORTEST = 4
"""Shorter values are parts of ordinary words."""
_concealed: frozenset[str] = frozenset()


def secretive(name: str, value: str) -> bool:
    """Whether a setting is not for everybody: its name says so, or its value holds a password."""
    return _NAMES.search(name) is not None or _ADDRESS.search(value) is not None


def secret_values(settings: Mapping[str, str]) -> frozenset[str]:
    """The values in `settings` that are not for everybody; of an address only its password."""
    whole = {value for name, value in settings.items() if _NAMES.search(name)}
    passwords = {found[1] for value in settings.values() for found in _ADDRESS.finditer(value)}
    return frozenset(value for value in whole | passwords if len(value) >= _SHORTEST)


def conceal(values: Iterable[str]) -> None:
    """Show these values in no error and no log of this process from now on."""
    global _concealed  # noqa: PLW0603  # what a process knows as secret is secret everywhere in it
    _concealed |= frozenset(values)


def concealed(text: str) -> str:
    """`text` without the values that are secret."""
    for value in sorted(_concealed, key=len, reverse=True):
        if value in text:
            text = text.replace(value, "***")
    return text
