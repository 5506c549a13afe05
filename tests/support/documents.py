"""What a document shows: its blocks, the commands in them, and what they are said to print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ANYTHING = "…"
FENCE = re.compile(r"^```(\S*)[ ]*([^\n]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block; `note` is what follows the language."""

    language: str
    note: str
    text: str

    @property
    def exit_code(self) -> int:
        match = re.fullmatch(r"exit=(\d+)", self.note)
        return int(match[1]) if match else 0

    @property
    def typed(self) -> Iterator[tuple[list[str], list[str]]]:
        """Each command of a console block, with the output shown for it."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            yield shlex.split(command), shown


def blocks_in(text: str, *languages: str) -> list[Block]:
    blocks = [Block(*match) for match in FENCE.findall(text)]
    return [block for block in blocks if block.language in languages] if languages else blocks


def blocks(document: Path, *languages: str) -> list[Block]:
    return blocks_in(document.read_text(), *languages)


def sections(document: Path) -> dict[str, str]:
    """The text below each heading of the second level, by heading."""
    _, *parts = re.split(r"^## (.+)\n", document.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def name(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def matches(shown: list[str], printed: str) -> bool:
    """Line by line; several spaces count as one, `…` stands for anything, and alone for any number of lines."""
    pattern = "".join(r"(?:.*\n)*" if line.strip() == ANYTHING else _pattern(line) + "\n" for line in shown)
    said = "".join(_plain(line) + "\n" for line in printed.rstrip().split("\n"))
    return re.fullmatch(pattern, said) is not None


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in _plain(line).split(ANYTHING))


def _plain(line: str) -> str:
    return " ".join(line.split())
