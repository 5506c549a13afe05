"""How many logs of Spark are kept."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.engine.spark import launch


def test_the_logs_of_the_last_processes_are_kept_and_no_more(tmp_path: Path) -> None:
    for number in range(30):
        log = tmp_path / f"spark-{number}.log"
        log.write_text("")
        os.utime(log, (number, number))
    (tmp_path / "other.log").write_text("")
    launch._keep_newest(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"other.log", *(f"spark-{number}.log" for number in range(10, 30))}
    launch._keep_newest(tmp_path / "nowhere")
