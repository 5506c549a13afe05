"""What has an attempt written that no commit names yet?"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.log.loaded import LoadedHead
from penstock.engine.values.job import AnyJob, StagedChunk, StagedFile
from penstock.values.tasks import Commit, Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """An attempt's rows, ready to be published."""

    job: AnyJob
    base_version: int | None
    """The snapshot whose files were read to keep rows; None when the table does not exist yet."""
    schema_json: str
    """The schema of the new rows."""
    files: tuple[StagedFile, ...]
    kept: tuple[StagedFile, ...]
    """Rows outside the scope of the files in `replaced`, written again."""
    replaced: tuple[str, ...]
    """The live files that met the scope; of an append those that hold a retracted row."""
    chunks: tuple[StagedChunk, ...]
    computed: tuple[StagedFile, ...] = ()
    """Of an append, the rows as the query gave them; `files` are those whose key is not stored."""
    warnings: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)
    head: LoadedHead | None = field(default=None, repr=False, compare=False)
    """The head of the table's log, when it was loaded ahead of publishing."""
    strategy: str = ""
    """How the rows were computed."""
    strategy_reason: str | None = None
    """Why in that way, where there was a choice."""
    on_base: bool = False
    """It fits only the very snapshot that was read."""
    committed: Commit | None = None
    """What an earlier attempt of the task has committed there."""
