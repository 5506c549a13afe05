"""The nouns of a project."""

from penstock.values.models.graph import Graph
from penstock.values.models.model import (
    Check,
    Chunking,
    Declared,
    Dependency,
    DynamicModel,
    Fill,
    FullModel,
    Group,
    IntervalModel,
    LagWord,
    Limits,
    Model,
    ModelType,
    OnSchemaChange,
    Schedules,
    Slices,
    Source,
)

__all__ = [
    "Check",
    "Chunking",
    "Declared",
    "Dependency",
    "DynamicModel",
    "Fill",
    "FullModel",
    "Graph",
    "Group",
    "IntervalModel",
    "LagWord",
    "Limits",
    "Model",
    "ModelType",
    "OnSchemaChange",
    "Schedules",
    "Slices",
    "Source",
]
