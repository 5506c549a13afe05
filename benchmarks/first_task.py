"""What is the first task of a process made of, against one when everything is warm?"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from penstock.engine.commit.publish import publish
from penstock.engine.spark.jars import delta_jars
from penstock.engine.spark.java import find
from penstock.engine.spark.query import query
from penstock.engine.spark.session import Session, SparkSettings
from penstock.engine.stage.staging import stage
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import InputRead, Job, Rendering
from penstock.runtime.place.workspace import cache_folder
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import Pin
from results import report

START, HOUR, ROWS = 1_767_225_600, 3600, 5_000
WARM = 5
STEPS = ("plan", "write", "look at what was written", "publish")
SELECT = "select date_trunc('hour', at) hour, kind, count(*) n, sum(value) total from events group by all"


def main() -> None:
    from results import arguments

    options = arguments(__doc__ or "")
    rows: list[list[object]] = []
    steps: list[list[object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        _events(root)
        # one after the other: the first process that stages keeps the classes that it loaded for all later ones
        for name, what in (
            ("first process ever, asks one query", "query"),
            ("next process, first to do tasks", "tasks"),
            ("every process after that", "tasks"),
        ):
            row, tasks = _measured(root, name, what)
            rows.append(row)
            steps += [
                [name, number + 1, *(f"{tasks[number][step]:.2f}" for step in STEPS)] for number in range(len(tasks))
            ]
    columns = ("process", "start s", "first task s", "warm task s", "first / warm", "start + first / warm", "CPU s")
    report("First task of a process", columns, rows, options.json)
    report("What its tasks are made of, seconds", ("process", "task", *STEPS), steps, None)


def _measured(root: Path, name: str, what: str) -> tuple[list[object], list[dict[str, float]]]:
    """A row of the table, and the seconds of each step of each task."""
    before = _cpu_seconds()
    said = subprocess.run(
        [sys.executable, __file__, "--child", what, str(root)], check=True, capture_output=True, text=True
    ).stdout
    answer = json.loads(said.splitlines()[-1])
    start, tasks = answer["start"], answer["tasks"]
    if not tasks:
        return [name, f"{start:.1f}", "", "", "", "", f"{_cpu_seconds() - before:.0f}"], []
    first, *others = (sum(task.values()) for task in tasks)
    warm = sorted(others)[WARM // 2]
    ratios = [f"{first / warm:.1f}", f"{(start + first) / warm:.1f}"]
    return [name, f"{start:.1f}", f"{first:.1f}", f"{warm:.2f}", *ratios, f"{_cpu_seconds() - before:.0f}"], tasks


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _child(what: str, root: Path) -> None:
    """One process: start Spark, then ask, or do tasks one after the other."""
    shared = cache_folder(os.environ)
    jars = delta_jars(os.environ, shared, find(os.environ, shared).home)
    environ = {**os.environ, "PENSTOCK_JARS": str(Path(jars[0]).parent)}
    session = Session(SparkSettings(cache=root / "cache", environ=environ, quick=True))
    read = InputRead("events", "raw.events", Pin(str(root / "events"), 0), position=PositionColumn("at", "second"))
    tasks: list[dict[str, float]] = []
    began = time.monotonic()
    session.spark()
    start = time.monotonic() - began
    if what == "query":
        query(session, "select count(*) as n from events", [read])
    else:
        tasks = [_task(session, root / str(os.getpid()), read, number) for number in range(1 + WARM)]
    session.stop()
    print(json.dumps({"start": start, "tasks": tasks}))


def _task(session: Session, table: Path, read: InputRead, number: int) -> dict[str, float]:
    """The seconds of each step."""
    span = Interval(START + number * HOUR, START + (number + 1) * HOUR)
    window = InputRead(read.view, read.name, read.pin, position=read.position, window=IntervalSet.of([span]))
    job = Job(
        model="bench.hours",
        location=str(table),
        position=PositionColumn("hour", "second"),
        chunks=(span,),
        renderings=(Rendering((span,), SELECT, (window,)),),
        cut=False,
        frontier={read.name: read.pin},
        task=uuid4(),
        attempt=1,
        generation="g",
        epoch=0,
        digests={},
    )
    times = [time.monotonic()]
    staged = stage(session, job, lambda _: times.append(time.monotonic()))
    publish(staged, lambda _: None)
    times.append(time.monotonic())
    return {step: end - begin for step, (begin, end) in zip(STEPS, pairwise(times), strict=True)}


def _events(root: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    total = ROWS * (1 + WARM)
    micros = pa.array([(START * 10**6) + i * HOUR * 10**6 // ROWS for i in range(total)], pa.timestamp("us", "UTC"))
    kinds, values = pa.array([i % 4 for i in range(total)]), pa.array([float(i) for i in range(total)])
    write_deltalake(str(root / "events"), pa.table({"at": micros, "kind": kinds, "value": values}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
