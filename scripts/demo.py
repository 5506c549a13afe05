"""Walks through the beacon demo: the same commands a person would type, with their output."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

PROGRAMS = {"penstock": str(Path(sys.executable).with_name("penstock")), "python": sys.executable}

STORY = (
    ("What was created: landing data, three sources, seven models.", "penstock validate"),
    ("What would be done, and why.", "penstock plan"),
    ("Do it: every interval of every model, on Spark, into Delta tables.", "penstock run"),
    ("Where everything stands. The last hour is not complete, so it waits.", "penstock status"),
    ("Why does the newest hour wait? The planner's own words.", "penstock explain beacon.hourly_stats"),
    ("A table without intervals: which key tells its rows apart?", "penstock explain beacon.validator_stats"),
    (
        "Recompute one hour. The rows come out the same, so nothing below it has to run.",
        "penstock rerun beacon.block_propagation --from 2026-01-01T02:00 --to 2026-01-01T03:00",
    ),
    ("A client that was cut off delivers what it saw hours ago.", "python scripts/late_rows.py"),
    ("Only what those rows are part of is computed again, model by model.", "penstock run"),
    ("Why was that minute computed again?", "penstock explain beacon.block_propagation --at 2026-01-01T02:12"),
    (
        "And of the table by validator, only the 13 that those rows belong to.",
        "penstock tasks validator_stats --history",
    ),
    ("Recompute everything from scratch and compare it with what is stored.", "penstock verify"),
    ("And once more: nothing has changed, so Spark does not even start.", "penstock run"),
)
NEXT = """
The demo is in {folder}. Try next, from there (put .venv/bin on your PATH first):
  penstock query "select * from hourly_stats order by hour"
  penstock explain beacon.block_network      which member of the OR group was used
  penstock render beacon.block_entity        the SQL that ran, ready to paste
  penstock tasks --history                   every task, its reason and its cost
Then edit a model in its folder models and type: penstock plan
"""


def main(folder: Path) -> int:
    if not (folder / "penstock.yml").exists():
        typed("Create the demo project and its data.", ["penstock", "init", str(folder), "--demo"], folder.parent)
    for why, command in STORY:
        typed(why, shlex.split(command), folder)
    print(NEXT.format(folder=folder))  # noqa: T201
    return 0


def typed(why: str, command: list[str], folder: Path) -> None:
    """Show a command, run it, and stop the walk when it fails."""
    print(f"\n# {why}\n$ {' '.join(command)}", flush=True)  # noqa: T201
    program, *arguments = command
    done = subprocess.run([PROGRAMS[program], *arguments], cwd=folder, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
