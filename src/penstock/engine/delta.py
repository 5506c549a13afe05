"""The data plane of one process: one Spark session, and what different callers may do with it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.attempts import Attempts
from penstock.engine.questions import Questions
from penstock.engine.scanner import Scanner
from penstock.engine.spark.session import Session


class DeltaEngine:
    """Spark and Delta. Spark is imported and started by the first call that needs it."""

    def __init__(self, session: Session, storage: Mapping[str, str]) -> None:
        self.session = session
        self.attempts = Attempts(session, storage)
        self.scanner = Scanner(session, storage)
        self.questions = Questions(session, storage)
