"""The nouns of a project."""

from penstock.values.models.graph import Graph
from penstock.values.models.model import (
    Check,
    Chunking,
    Dependency,
    Fill,
    Group,
    IntervalModel,
    Limits,
    Model,
    ModelType,
    Schedules,
    Source,
)

__all__ = [
    "Check",
    "Chunking",
    "Dependency",
    "Fill",
    "Graph",
    "Group",
    "IntervalModel",
    "Limits",
    "Model",
    "ModelType",
    "Schedules",
    "Source",
]
