"""Is what README and docs show true?"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from penstock.cli.main import app
from penstock.project import load
from penstock.project.keys import keys_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "changes").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
LANGUAGES = {"console", "sql", "yaml", "python", "text", "mermaid"}
ENVIRON = {"PENSTOCK_STATE": "postgresql://penstock@localhost/penstock"}
ANYTHING = "…"
_FENCE = re.compile(r"^```(\S*)[ ]*([^\n]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FIRST_LINE = re.compile(r"(?:#|--) (\S+)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block; `note` is what follows the language."""

    language: str
    note: str
    text: str

    @property
    def exit_code(self) -> int:
        found = re.fullmatch(r"exit=(\d+)", self.note)
        return int(found[1]) if found else 0

    @property
    def typed(self) -> Iterator[tuple[list[str], list[str]]]:
        """Each command of a console block, with the output shown for it."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            yield shlex.split(command), shown


def blocks(document: Path, *languages: str) -> list[Block]:
    found = [Block(*match) for match in _FENCE.findall(document.read_text())]
    return [block for block in found if block.language in languages] if languages else found


def having(*languages: str) -> list[Path]:
    return [document for document in DOCUMENTS if blocks(document, *languages)]


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


@pytest.fixture(scope="module")
def beacon(tmp_path_factory: pytest.TempPathFactory, shell_in: Callable[[Path], Any]) -> Any:
    """A demo of its own, because the tour shows what happens on a project that never ran."""
    folder = tmp_path_factory.mktemp("documents")
    shell_in(folder)("init", "beacon", "--demo")
    return shell_in(folder / "beacon")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", having("console"), ids=name)
def test_commands_print_what_is_shown(
    document: Path, beacon: Any, shell_in: Callable[[Path], Any], tmp_path: Path
) -> None:
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for block in blocks(document, "console"):
        for (program, *arguments), shown in block.typed:
            if program == "make":
                assert set(arguments) <= set(targets), f"{name(document)}: make {' '.join(arguments)}"
                continue
            assert program in ("penstock", "cd"), f"{name(document)}: {program} cannot be tried here"
            if program == "cd":
                continue
            place = shell_in(tmp_path) if arguments[0] == "init" else beacon
            answer = place(*arguments, code=block.exit_code)
            printed = answer.out + (answer.err if block.exit_code else "")
            if shown and not matches(shown, printed):
                difference = "\n".join(difflib.ndiff(shown, printed.rstrip().split("\n")))
                pytest.fail(f"{name(document)}: penstock {shlex.join(arguments)} printed something else\n{difference}")


@pytest.mark.parametrize("document", having("sql", "yaml"), ids=name)
def test_the_files_of_a_document_are_a_project(document: Path, tmp_path: Path) -> None:
    for block in blocks(document, "sql", "yaml"):
        first = _FIRST_LINE.match(block.text)
        assert first, f"{name(document)}: the first line of a block names its file:\n{block.text}"
        file = tmp_path / first[1]
        assert not file.exists(), f"{name(document)}: {first[1]} stands there twice"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)
    settings = tmp_path / "penstock.yml"
    if not settings.exists():
        settings.write_text("name: document\ndatabases: {external: raw, transformation: shop}\n")
    for target in yaml.safe_load(settings.read_text()).get("targets") or [None]:
        project = load(tmp_path, ENVIRON, target)
        assert project.graph.models
        assert not project.warnings


@pytest.mark.parametrize("document", having("python"), ids=name)
def test_python_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(document, "python"):
        exec(compile(block.text, name(document), "exec"), {"__name__": "document"})


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_block_is_tried_or_marked_as_text(document: Path) -> None:
    assert {block.language for block in blocks(document)} <= LANGUAGES
    assert document.read_text().count("\n```") == 2 * len(blocks(document)), "a fence is not closed"
    for block in blocks(document, "console"):
        assert not block.note or re.fullmatch(r"exit=\d+", block.note)
        assert block.text.startswith("$ ")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", document.read_text())):
        path, _, heading = link.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), f"{name(document)} links to {link}"
        assert not heading or heading in anchors(there), f"{name(document)} links to {link}"


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_and_options_that_are_named_exist(document: Path) -> None:
    text = document.read_text()
    commands, options = known_commands(), known_options()
    for command in re.findall(r"(?:`|^\$ |^  )penstock ([a-z]+)", text, re.MULTILINE):
        assert command in commands, f"{name(document)}: penstock {command}"
    for option in re.findall(r"(?<=[\s`(])--([a-z][a-z-]+)", text):
        assert f"--{option}" in options, f"{name(document)}: --{option}"


def test_every_command_and_every_key_is_documented() -> None:
    operating = (ROOT / "docs/operating.md").read_text()
    assert known_commands() <= set(re.findall(r"`penstock ([a-z]+)", operating))
    quoted = re.findall(r"`([^`]+)`", _FENCE.sub("", (ROOT / "docs/projects.md").read_text()))
    told = set(re.findall(r"[a-z_]+", " ".join(quoted)))
    assert {key.name for kind in ("source", "interval") for key in keys_of(kind)} <= told


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    terms = re.findall(r"^\| ([A-Za-z -]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)[1:]
    assert terms == sorted(set(terms), key=str.casefold)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_data_has_snapshots_and_generations_and_no_versions(document: Path) -> None:
    assert not re.findall(r"\bversions?\b", document.read_text())


def test_output_that_differs_is_noticed() -> None:
    assert matches(["one  two", "three … five", ANYTHING, "six"], "one two\nthree 4 five\n\n5.5\nsix\n")
    assert not matches(["one two"], "one three\n")
    assert not matches(["one"], "one\ntwo\n")
    assert not matches(["one", "two"], "one\n")


def known_commands() -> set[str]:
    return set(typer.main.get_command(app).commands)


def known_options() -> set[str]:
    group = typer.main.get_command(app)
    commands = [group, *group.commands.values()]
    return {option for command in commands for found in command.params for option in found.opts} | {"--help"}
