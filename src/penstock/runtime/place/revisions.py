"""The applied project, as the state database keeps it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.project import Project, cache_of, unpack
from penstock.runtime.place.definitions import unbundled
from penstock.runtime.place.table_resolver import TableResolver
from penstock.state.projects import Projects
from penstock.values.records import StateView


class Revisions:
    """The applied project as the database keeps it; what lies on this machine's disk only says where that is."""

    def __init__(self, own: Project, environ: Mapping[str, str]) -> None:
        self._own, self._environ = own, environ
        self._lock = threading.Lock()
        self._resolver: TableResolver | None = None

    def resolver(self, view: StateView, projects: Projects) -> TableResolver | None:
        """None: nothing was ever applied."""
        if view.revision is None:
            return None
        with self._lock:
            if self._resolver is None or self._resolver.project.revision != view.revision:
                self._resolver = TableResolver(self._stored(view.revision, projects))
            return self._resolver

    def _stored(self, revision: str, projects: Projects) -> Project:
        own = self._own
        if own.revision == revision:  # the same files in the same place, for the same target
            return own
        files = unbundled(projects.bundle(revision))
        return unpack(files, own.root, self._environ, own.settings.target.name, cache_of(own.root))
