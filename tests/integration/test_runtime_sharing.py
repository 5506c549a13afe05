"""What becomes of chunks whose query cannot be shared after all?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deployment import Deployment

from penstock.runtime.work import jobs

RUNNING = "select n, sum(value) over (order by n) as value from {{ ref('raw.numbers') }}"


def test_a_text_that_is_refused_only_in_the_attempt_is_asked_chunk_by_chunk(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Deployment.empty(tmp_path, dsn)
    trial.source("numbers")
    trial.model("running", RUNNING)
    trial.land("numbers", range(40), factor=1)
    honest, texts = jobs.render_shared, []

    def other(*arguments: Any, **more: Any) -> str:
        texts.append(f"{honest(*arguments, **more)} limit 1000")
        return texts[-1]

    monkeypatch.setattr(jobs, "render_shared", other)
    trial.run()
    assert texts
    assert {(task.state, task.attempt) for task in trial.tasks()} == {("succeeded", 1)}
    assert trial.rows("running") == [(n, sum(range(n - n % 10, n + 1))) for n in range(40)]
