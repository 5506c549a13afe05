"""What is the first task of a process made of, against one when everything is warm?"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from penstock.engine.files import PositionColumn
from penstock.engine.jars import delta_jars
from penstock.engine.java import find
from penstock.engine.job import InputRead, Job, Rendering
from penstock.engine.publish import publish
from penstock.engine.query import query
from penstock.engine.session import Session, SparkSettings
from penstock.engine.stage import stage
from penstock.intervals import Interval, IntervalSet
from penstock.runtime.workspace import cache_folder
from penstock.tasks import Pin
from results import report

START, HOUR, ROWS = 1_767_225_600, 3600, 5_000
WARM = 5
SELECT = "select date_trunc('hour', at) hour, kind, count(*) n, sum(value) total from events group by all"


def main() -> None:
    from results import arguments

    options = arguments(__doc__ or "")
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        _events(root)
        # one after the other: the first process that stages keeps the classes that it loaded for all later ones
        for name, what in (
            ("first process ever, asks one query", "query"),
            ("next process, first to do tasks", "tasks"),
            ("every process after that", "tasks"),
        ):
            rows.append(_measured(root, name, what))
    columns = ("process", "start s", "first task s", "warm task s", "first / warm", "start + first / warm", "CPU s")
    report("First task of a process", columns, rows, options.json)


def _measured(root: Path, name: str, what: str) -> list[object]:
    before = _cpu_seconds()
    said = subprocess.run(
        [sys.executable, __file__, "--child", what, str(root)], check=True, capture_output=True, text=True
    ).stdout
    told = json.loads(said.splitlines()[-1])
    start, first, warm = told["start"], told.get("first"), told.get("warm")
    if first is None:
        return [name, f"{start:.1f}", "", "", "", "", f"{_cpu_seconds() - before:.0f}"]
    ratios = [f"{first / warm:.1f}", f"{(start + first) / warm:.1f}"]
    return [name, f"{start:.1f}", f"{first:.1f}", f"{warm:.2f}", *ratios, f"{_cpu_seconds() - before:.0f}"]


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
    told: dict[str, float] = {}
    began = time.monotonic()
    session.spark()
    told["start"] = time.monotonic() - began
    if what == "query":
        query(session, "select count(*) as n from events", [read])
    else:
        seconds = [_task(session, root / str(os.getpid()), read, number) for number in range(1 + WARM)]
        told |= {"first": seconds[0], "warm": sorted(seconds[1:])[WARM // 2]}
    session.stop()
    print(json.dumps(told))


def _task(session: Session, table: Path, read: InputRead, number: int) -> float:
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
    began = time.monotonic()
    publish(stage(session, job, lambda _: None), lambda _: None)
    return time.monotonic() - began


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
