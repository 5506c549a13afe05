"""What do `status` and `explain` cost when a model is covered in very many parts, against one part?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.runtime.place.workspace import Workspace, apply, open_workspace
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import observe
from penstock.values.intervals import IntervalSet
from places import scratch
from projects import command
from results import arguments, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from deployment import commit

STEP = 20
COMMANDS = {"status": ("status",), "status --json": ("status", "--json"), "explain": ("explain", "t.copy")}


def write(root: Path, parts: int) -> None:
    for folder in ("external", "transformations"):
        (root / "models" / folder).mkdir(parents=True)
    (root / "penstock.yml").write_text("name: parts\ndatabases: {external: raw, transformation: t}\n")
    source = "location: ./landing/numbers\nposition: n\naxis: number\ncompleteness: inclusive\n"
    (root / "models/external/numbers.yml").write_text(source)
    model = "---\nposition: n\ninterval: 10\n---\nselect n, value from {{ ref('raw.numbers') }}\n"
    (root / "models/transformations/copy.sql").write_text(model)
    commit(root / "landing/numbers", {"n": [0, parts * STEP], "value": [1, 2]})


def cover(workspace: Workspace, held: IntervalSet) -> None:
    """As if so many chunks had been computed, and summed up since."""
    edges = f"{{{','.join(map(str, held.edges))}}}"
    workspace.state.database.connection.execute(
        "insert into folded (generation, through, covered, stale) "
        "select no, 0, %s::bigint[], '{}' from generation "
        "on conflict (generation) do update set covered = excluded.covered",
        [edges],
    )


def main() -> None:
    options = arguments(__doc__ or "", quick="5,000 parts")
    parts = 5_000 if options.quick else 500_000
    shapes = {
        "1 part": IntervalSet.of([(0, parts * STEP)]),
        f"{parts:,} parts": IntervalSet.of((n * STEP, n * STEP + 10) for n in range(parts)),
    }
    rows: list[list[object]] = []
    with scratch() as root:
        os.environ["PENSTOCK_PG_LINGER"] = "60"
        write(root, parts)
        with open_workspace(root, os.environ) as workspace:
            apply(workspace)
            observe(workspace, Silent())
        of_one_part: dict[str, float] = {}
        for shape, held in shapes.items():
            with open_workspace(root, os.environ) as workspace:
                cover(workspace, held)
            for name, typed in COMMANDS.items():
                wall, cpu = min(command(root, *typed) for _ in range(3))
                of_one_part.setdefault(name, cpu)
                rows.append([name, shape, f"{wall:.2f}", f"{cpu:.2f}", f"{cpu / of_one_part[name]:.1f}"])
        os.environ["PENSTOCK_PG_LINGER"] = "0"
        command(root, "status")
    report("covered in many parts", ("command", "coverage", "wall s", "CPU s", "of one part"), rows, options.json)


if __name__ == "__main__":
    main()
