"""Which values must not be shown, wherever a text goes?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_NAMES = re.compile(r"secret|passw|pwd|token|key(?!tab|word)|credential|signature|sas(?![a-z])", re.IGNORECASE)
PASSWORD = re.compile(r"(?P<before>://[^\s/:@]*):\S+@")
"""Of an address: all up to its last @, for a password may hold anything."""
_AFTER_USER = re.compile(r"://[^\s/:@]*:(?!\d{1,5}/)(?=(?P<rest>\S*))")
"""What of an address may begin with a password; digits up to a slash are a port."""
_SHORTEST = 4
"""Shorter values are parts of ordinary words."""
_concealed: frozenset[str] = frozenset()


def secretive(name: str, value: str) -> bool:
    """Whether a setting is not for everybody: its name says so, or its value holds a password."""
    return _NAMES.search(name) is not None or any(True for _ in _passwords(value))


def secret_values(settings: Mapping[str, str]) -> frozenset[str]:
    """The values in `settings` that are not for everybody; of an address only its password."""
    whole = {value for name, value in settings.items() if _NAMES.search(name)}
    passwords = {password for value in settings.values() for password in _passwords(value)}
    return frozenset(value for value in whole | passwords if len(value) >= _SHORTEST)


def _passwords(text: str) -> Iterator[str]:
    """What may be the passwords of the addresses in `text`: nothing says which @ ends one, so each may."""
    for after_user in _AFTER_USER.finditer(text):
        yield from (after_user["rest"][: at.start()] for at in re.finditer("@", after_user["rest"]) if at.start())


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
