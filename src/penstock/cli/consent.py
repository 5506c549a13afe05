"""Asks a person to confirm what takes something away from readers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from penstock.errors import UsageError


def require_consent(questions: Sequence[str], yes: bool) -> None:
    """Ask, unless `yes` answers already; without a terminal it is refused. Standard output is left to the answer."""
    if not questions or yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this would change what is served:\n" + "\n".join(questions), hint="repeat it with --yes")
    for question in questions:
        typer.secho(question, fg="yellow", err=True)
    # typer's own prompt would put a space into standard output
    typer.echo("Go on? [y/N]: ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("cancelled; nothing was changed")
