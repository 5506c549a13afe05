"""The engines that need no JVM keep the promises of the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from append_contract import AppendContract, AppendControls
from arrow_engine import ArrowEngine
from engine_contract import Controls, EngineContract
from engine_harness import DeltaHarness, EngineHarness, MemoryHarness


class TestMemoryEngine(EngineContract, AppendContract, Controls, AppendControls):
    @pytest.fixture
    def harness(self) -> EngineHarness:
        return MemoryHarness()


class TestArrowEngine(EngineContract, AppendContract, Controls, AppendControls):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> EngineHarness:
        engine = ArrowEngine()
        return DeltaHarness(tmp_path, engine, engine)
