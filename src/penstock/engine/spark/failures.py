"""Which of our errors is an exception from Spark, and what does its message say?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import AttemptError, BadQueryError, EngineError, PenstockError, QueryError, SourceError

if TYPE_CHECKING:
    from penstock.engine.spark.session import Attempt

_USER_STATES = ("07", "0A", "21", "22", "23", "2F", "38", "39", "42", "44", "54", "P0")
"""SQLSTATE classes of wrong queries and wrong data; all others are Spark's, the file system's or the network's."""
_NOISE = re.compile(
    r"\s*(== (SQL|DataFrame|Plan|Physical|Parsed|Analyzed)\b|JVM stacktrace|at (org|java|scala)\.|Caused by:"
    r"|; line \d+ pos \d+;?\s*['+\w]).*",
    re.S,
)
_STATE = re.compile(r"\s*SQLSTATE: ([0-9A-Z]{5})")
_LONGEST = 600
_FILES = (
    "PATH_NOT_FOUND",
    "PATH_ALREADY_EXISTS",
    "FAILED_READ_FILE",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_TRUNCATED",
    "DELTA_VERSION_NOT_FOUND",
)
"""Conditions about files that Spark counts among the analysis errors: trying again may help."""


@contextmanager
def translating(attempt: Attempt, about: str, timeout_seconds: float) -> Iterator[None]:
    """Let nothing out of Spark but our own errors, which tell what the attempt had cost."""
    try:
        with _in_our_words(attempt, about, timeout_seconds):
            yield
    except AttemptError as error:
        error.spark_jobs = attempt.jobs
        raise


@contextmanager
def _in_our_words(attempt: Attempt, about: str, timeout_seconds: float) -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        raise EngineError(f"{about}: {error.message}", hint=error.hint) from error
    except PenstockError:
        raise
    except Exception as error:
        if not is_spark_error(error):
            raise
        if attempt.timed_out:
            raise EngineError(
                f"{about}: not done after {timeout_seconds} s, given up",
                hint="raise `timeout`, or make the interval smaller",
            ) from error
        raise translated(error, about) from error


def translated(error: Exception, about: str) -> AttemptError:
    """`error` as one of ours: a QueryError when the query or its data is at fault, else an EngineError."""
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, AttemptError):
        return error
    chain = _causes(error)
    for cause in chain:
        if any(f"[{condition}" in str(cause) for condition in _FILES):
            deeper = f": {_short(str(chain[-1]))}" if chain[-1] is not cause else ""
            return EngineError(f"{about}: {_short(str(cause))}{deeper}")
        state = _sql_state(cause)
        if isinstance(cause, (AnalysisException, ParseException)):
            return BadQueryError(f"{about}: {_short(str(cause))}")
        if (state or "").startswith(_USER_STATES):
            return QueryError(f"{about}: {_short(str(cause))}")
    return EngineError(f"{about}: {_short(str(chain[-1])) or type(chain[-1]).__name__}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error`, or what caused it, says that the heap of the JVM was too small."""
    texts = [str(error)]
    while (cause := error.__cause__) is not None and len(texts) < 10:
        texts.append(str(cause))
        error = cause
    return any("OutOfMemoryError" in text or "Java heap space" in text for text in texts)


def is_spark_error(error: Exception) -> bool:
    """Whether `error` came out of Spark or the bridge to it; anything else is a bug of ours and must crash."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, (PySparkException, Py4JError, Py4JJavaError, ConnectionError, OSError))


def _causes(error: Exception) -> list[Exception]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import convert_exception

    if isinstance(error, Py4JJavaError):
        error = convert_exception(error.java_exception)
    chain: list[Exception] = [error]
    while len(chain) < 10:
        cause = getattr(chain[-1], "_cause", None)
        if not isinstance(cause, Exception):
            return chain
        chain.append(cause)
    return chain


def _sql_state(error: Exception) -> str | None:
    match = _STATE.search(str(error))
    return match[1] if match else None


def _short(text: str) -> str:
    text = _STATE.sub("", _NOISE.sub("", text)).strip()
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
