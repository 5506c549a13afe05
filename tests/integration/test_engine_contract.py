"""The engines that need no JVM keep the promises of the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from append_contract import AppendContract, AppendControls
from arrow_engine import ArrowEngine
from engine_contract import Controls, EngineContract
from workbenches import DeltaBench, MemoryBench, Workbench


class TestMemoryEngine(EngineContract, AppendContract, Controls, AppendControls):
    @pytest.fixture
    def workbench(self) -> Workbench:
        return MemoryBench()


class TestArrowEngine(EngineContract, AppendContract, Controls, AppendControls):
    @pytest.fixture
    def workbench(self, tmp_path: Path) -> Workbench:
        engine = ArrowEngine()
        return DeltaBench(tmp_path, engine, engine)
