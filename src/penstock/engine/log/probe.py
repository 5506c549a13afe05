"""Can this place hold tables: does exactly one of two writers of the same commit win?"""

from __future__ import annotations

import shutil

from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from penstock.engine.log.storage import Storage, local_path, options
from penstock.errors import EngineError


def put_if_absent(location: str, storage: Storage | None = None) -> None:
    """Let two handles on one snapshot commit there; removes what it made."""
    local = local_path(location)
    try:
        schema = Schema([Field("x", PrimitiveType("integer"))])
        DeltaTable.create(location, schema, storage_options=options(storage))
        handles = [DeltaTable(location, storage_options=options(storage)) for _ in range(2)]
        won = sum(_commits(handle, schema) for handle in handles)
    except (DeltaError, OSError) as error:
        raise EngineError(
            f"{location} cannot be written: {error}", hint="check the path, its rights and `storage:`"
        ) from error
    finally:
        if local is not None:
            shutil.rmtree(local, ignore_errors=True)
    if won != 1:
        raise EngineError(
            f"{location}: {won} of two writers of one commit won",
            hint="this storage cannot keep Delta tables safely; use one with conditional writes",
        )


def _commits(handle: DeltaTable, schema: Schema) -> bool:
    try:
        handle.create_write_transaction(
            [],
            "append",
            schema,
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
        )
    except DeltaError:
        return False
    return True
