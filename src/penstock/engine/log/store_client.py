"""How does a store that does not answer stop only those who wait for it?

Most of delta-rs lets other threads go on while it waits. Opening a file does not: it asks for the file's size and holds
Python's lock until the answer is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileType

if TYPE_CHECKING:
    from pyarrow import PythonFile


class StoreClient(DeltaStorageHandler):
    """Asks for a file in a way that lets others go on; only once the store has answered is the file opened."""

    def open_input_file(self, path: str) -> PythonFile:
        self._await_answer(path)
        return super().open_input_file(path)

    def open_input_stream(self, path: str) -> PythonFile:
        self._await_answer(path)
        return super().open_input_stream(path)

    def _await_answer(self, path: str) -> None:
        (info,) = self.get_file_info([path])
        if info.type == FileType.NotFound:
            raise FileNotFoundError(path)
