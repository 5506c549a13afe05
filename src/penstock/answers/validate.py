"""What does a project consist of, and what should its author know about it?"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from penstock.project import Project

APART = "each interval has a query of its own"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that is no mistake."""

    message: str
    file: str


@dataclass(frozen=True, slots=True)
class Validated:
    """A project without errors."""

    project: Project
    notes: tuple[Note, ...]

    @property
    def sources(self) -> int:
        return len(self.project.graph.sources)

    @property
    def models(self) -> int:
        return len(self.project.graph.models) - self.sources

    def as_json(self) -> dict[str, object]:
        warnings = [{"message": w.message, "file": w.file, "line": w.line} for w in self.project.warnings]
        notes = [asdict(note) for note in self.notes]
        return {"sources": self.sources, "models": self.models, "errors": 0, "warnings": warnings, "notes": notes}


def validated(project: Project) -> Validated:
    apart = [model for model in project.graph.interval_models if not model.widens]
    return Validated(project, tuple(Note(f"{APART}: {model.widens_reason}", model.file) for model in apart))
