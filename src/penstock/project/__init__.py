"""Project files: load, validate, render."""

from penstock.project.files import find_root, project_root
from penstock.project.keys.json_schema import schema
from penstock.project.keys.settings import Scheduler, Settings, Target, Web, Worker, WorkerGlob
from penstock.project.project import (
    Project,
    cache_of,
    load,
    render,
    render_bounds,
    render_dynamic,
    render_shared,
    unpack,
)
from penstock.project.queries.analysis import Analysis
from penstock.project.reading.problems import Notice
from penstock.project.templates.context import Ref, RefUse, ScanContext
from penstock.project.templates.names import moment
from penstock.project.templates.rendering import Inputs

__all__ = [
    "Analysis",
    "Inputs",
    "Notice",
    "Project",
    "Ref",
    "RefUse",
    "ScanContext",
    "Scheduler",
    "Settings",
    "Target",
    "Web",
    "Worker",
    "WorkerGlob",
    "cache_of",
    "find_root",
    "load",
    "moment",
    "project_root",
    "render",
    "render_bounds",
    "render_dynamic",
    "render_shared",
    "schema",
    "unpack",
]
