"""Which project, which target, text or JSON? The same options on every command, before or after its name."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Concatenate, ParamSpec

import typer

P = ParamSpec("P")

Project = Annotated[
    Path | None, typer.Option("--project", metavar="DIR", help="The project's folder (default: found by walking up).")
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The project file (default: penstock.yml).")
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="One of the project's targets (default: the first).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show where an error came from.")]
_SHARED = {"project": Project, "config": Config, "target": Target, "json": Json, "verbose": Verbose}


@dataclass(frozen=True, slots=True)
class Options:
    project: Path | None = None
    config: Path | None = None
    target: str | None = None
    json: bool = False
    verbose: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def start(self) -> Path:
        return self.project or Path.cwd()


def with_options(function: Callable[Concatenate[Options, P], None]) -> Callable[..., None]:
    """Give a command the shared options; it receives them as one value."""
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "options"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_default(name), annotation=annotation)
        for name, annotation in _SHARED.items()
    ]

    @functools.wraps(function)
    def command(context: typer.Context, **values: object) -> None:
        shared_values = {name: values.pop(name) for name in _SHARED}
        base = context.obj if isinstance(context.obj, Options) else Options()
        options = replace(base, **{name: value for name, value in shared_values.items() if value not in (None, False)})  # type: ignore[arg-type]
        function(options, **values)  # type: ignore[arg-type, call-arg]

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    command.__signature__ = inspect.Signature([context, *own, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [context, *own, *shared]}
    del command.__wrapped__  # typer would follow it to the bare function
    return command


def _default(name: str) -> object:
    return False if name in ("json", "verbose") else None
