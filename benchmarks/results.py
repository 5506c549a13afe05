"""How is a measurement printed and kept?"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Sequence
from pathlib import Path


def arguments(description: str, quick: str | None = None, rows: int | None = None) -> argparse.Namespace:
    """`quick` says what a short run leaves out, where there is one; `rows` is how many there are unless told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    if rows is not None:
        parser.add_argument("--rows", type=int, default=rows, help=f"how many rows (default: {rows:,})")
    return parser.parse_args()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of all do not exceed."""
    ranked = sorted(values)
    return ranked[max(math.ceil(len(ranked) * share) - 1, 0)]


def report(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], target: Path | None) -> None:
    """Print one table; write it as JSON when a file is given."""
    cells = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    print(title)
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        figures = [dict(zip(columns, row, strict=True)) for row in rows]
        target.write_text(json.dumps({"title": title, "python": platform.python_version(), "rows": figures}, indent=1))
