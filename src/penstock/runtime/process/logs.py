"""Log lines: their format, their fields, and what is hidden in them."""

from __future__ import annotations

import json
import logging
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TextIO

from penstock.secrets import PASSWORD, concealed

NAME = "penstock"
TAIL_LINES = 100
TAIL_CHARACTERS = 20_000
"""A tail is stored with its attempt: a loop that logs long errors must not fill the database."""
VALUE_CHARACTERS = 4_000
_READ_CHARACTERS = 5 * VALUE_CHARACTERS
"""What is looked through for secrets: far more than is kept, so that no cut takes the end off a secret."""

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]

_BARE = re.compile(r"[^\s\"=\\]+")
_SECRET = r"(?i:password|passwd|pwd|secret|access_?key|account_?key|session_?token|sas_?token)[\w.-]{0,30}"  # noqa: S105
_SECRET_NAME = re.compile(_SECRET)
_ASSIGNED = re.compile(_SECRET + r"[\"']?\s*[=:]\s*('(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?|[^\s&,;)\]}]+)")


class Tail:
    """The last lines logged inside an `attempt_log`, whatever is printed of them."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)

    def add(self, line: str) -> None:
        self._lines.append(line)

    def text(self) -> str:
        kept: deque[str] = deque()
        room = TAIL_CHARACTERS
        for line in reversed(self._lines):
            room -= len(line) + 1
            if room < 0:
                break
            kept.appendleft(line)
        return "\n".join(kept)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What this thread is busy with."""

    fields: Mapping[str, object] = field(default_factory=dict)
    tails: tuple[Tail, ...] = ()


_scope: ContextVar[_Scope] = ContextVar("penstock_log_scope", default=_Scope())  # noqa: B039  # frozen, never filled


def configure(level: str, as_json: bool, stream: TextIO) -> None:
    """Print what is at least as bad as `level`: debug, info, warning or error."""
    for handler in [handler for handler in _logger.handlers if isinstance(handler, logging.StreamHandler)]:
        _logger.removeHandler(handler)
    printing: logging.Handler = logging.StreamHandler(stream)
    printing.setLevel(_number(level))
    printing.setFormatter(_JsonLine() if as_json else _Line())
    _logger.addHandler(printing)


def log(event: str, /, level: str = "info", **fields: object) -> None:
    """One line: what happened and the facts about it, with those bound to this thread."""
    _logger.log(_number(level), event, extra={"fields": fields})


@contextmanager
def attempt_log(**fields: object) -> Iterator[Tail]:
    """Bind fields to everything this thread logs inside the block, and keep its last lines."""
    outer, tail = _scope.get(), Tail()
    token = _scope.set(_Scope({**outer.fields, **fields}, (*outer.tails, tail)))
    try:
        yield tail
    finally:
        _scope.reset(token)


def masked(text: str) -> str:
    """The same without the passwords of addresses and what is assigned to names of secrets."""
    hidden = PASSWORD.sub(r"\g<before>:***@", concealed(text[:_READ_CHARACTERS]))
    hidden = _ASSIGNED.sub(lambda match: match[0].removesuffix(match[1]) + "***", hidden)
    return hidden if len(text) <= VALUE_CHARACTERS else hidden[:VALUE_CHARACTERS] + "…"


def plain(value: object, name: str = "") -> Plain:
    """A value as JSON can say it, without secrets."""
    if _SECRET_NAME.search(name):
        return "***"
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {masked(str(key)): plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple | Set):
        return [plain(item) for item in value]
    return masked(value.isoformat() if isinstance(value, datetime) else str(value))


class _Line(logging.Formatter):
    """`2026-11-16T02:40:00Z info  task_succeeded task=12 model=shop.orders`."""

    def format(self, record: logging.LogRecord) -> str:
        said = (f"{name}={_word(value)}" for name, value in _facts(self, record).items())
        moment = datetime.fromtimestamp(int(record.created), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return " ".join([moment, f"{record.levelname.lower():<5}", _word(masked(record.getMessage())), *said])


class _JsonLine(logging.Formatter):
    """The same as one JSON object, with values of their own types."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fixed = {"at": moment, "level": record.levelname.lower(), "event": masked(record.getMessage())}
        return json.dumps(fixed | {name: value for name, value in _facts(self, record).items() if name not in fixed})


class _Keep(logging.Handler):
    """Gives every line, printed or not, to the tails of the thread that logged it."""

    def emit(self, record: logging.LogRecord) -> None:
        tails = _scope.get().tails
        if not tails:
            return
        try:
            line = self.format(record)
        except Exception:  # a value that cannot be said must not end the attempt
            self.handleError(record)
        else:
            for tail in tails:
                tail.add(line)


def _facts(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Plain]:
    """Bound fields first, then the record's own; what is not there is left out."""
    said: dict[str, object] = {**_scope.get().fields, **getattr(record, "fields", {})}
    if record.exc_info:
        said["traceback"] = formatter.formatException(record.exc_info)
    return {name: plain(value, name) for name, value in said.items() if value is not None}


def _word(value: Plain) -> str:
    """As it is when it can be told apart from what follows, else quoted as a JSON string."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _BARE.fullmatch(text) and text.isprintable() else json.dumps(text, ensure_ascii=not _shown(text))


def _shown(text: str) -> bool:
    """Whether all of it can stand in one line and in the database."""
    return text.replace("\n", "").replace("\t", "").isprintable()


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _own_logger() -> logging.Logger:
    # everything is logged and the handlers choose, because a tail keeps what is not printed
    logger = logging.getLogger(NAME)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    keep = _Keep()
    keep.setFormatter(_Line())
    logger.addHandler(keep)
    return logger


_logger = _own_logger()
