"""What differs by the format of a source?

Spark reads a source of any format that it knows. A format whose log tells its snapshots has a row here, and a reader of
that log in `engine/observe/<format>_log.py`, which gives what `engine/observe/source_log.py` `SourceLog` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A format as Spark names it."""

    name: str
    version_option: str | None = None
    """The option of Spark's reader that asks for one snapshot; None: there are none, so that only scans can tell."""
    version_clause: str = ""
    """The same in SQL, before the number."""

    @property
    def has_log(self) -> bool:
        return self.version_option is not None


DELTA = SourceFormat("delta", version_option="versionAsOf", version_clause="VERSION AS OF")
_WITH_LOG = {known.name: known for known in (DELTA,)}


def source_format(name: str) -> SourceFormat:
    """What is known of a format, by its name in any spelling."""
    return _WITH_LOG.get(name.lower()) or SourceFormat(name.lower())
