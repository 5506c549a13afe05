"""The real engine keeps the promises that its stand-ins are held to."""

from __future__ import annotations

from pathlib import Path

import pytest
from append_contract import AppendContract
from engine_contract import EngineContract
from engine_harness import DeltaHarness, EngineHarness

from penstock.engine.delta import DeltaEngine
from penstock.engine.spark.session import Session


class TestDeltaEngine(EngineContract, AppendContract):
    @pytest.fixture
    def harness(self, session: Session, tmp_path: Path) -> EngineHarness:
        engine = DeltaEngine(session, {})  # one JVM for all tests
        return DeltaHarness(tmp_path, engine.attempts, engine.questions)
