"""Project files: load, validate, render."""

from penstock.project.analysis import Analysis
from penstock.project.files import find_root, project_root
from penstock.project.json_schema import schema
from penstock.project.problems import Notice
from penstock.project.project import Project, cache_of, load, render, render_bounds, render_shared, unpack
from penstock.project.rendering import Inputs, Ref, RefUse, ScanContext, moment
from penstock.project.settings import Scheduler, Settings, Target, Web, Worker, WorkerGlob

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
    "render_shared",
    "schema",
    "unpack",
]
