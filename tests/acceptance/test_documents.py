"""Is what README and docs show true?"""

from __future__ import annotations

import ast
import difflib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from documents import ANYTHING, FENCE, ROOT, blocks, matches, name

from penstock.cli.main import app
from penstock.project import load

DOCUMENTS = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "changes").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
EXAMPLES = tuple(sorted((ROOT / "examples").rglob("*.md")))
"""What they show is tried where their stories are told."""
LANGUAGES = {"console", "sql", "yaml", "python", "text", "mermaid"}
ENVIRON = {"PENSTOCK_STATE": "postgresql://penstock@localhost/penstock"}
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FIRST_LINE = re.compile(r"(?:#|--) (\S+)\n")


def having(*languages: str) -> list[Path]:
    return [document for document in DOCUMENTS if blocks(document, *languages)]


@pytest.fixture(scope="module")
def beacon(tmp_path_factory: pytest.TempPathFactory, typed_in: Callable[[Path], Any]) -> Any:
    """A demo of its own, because the tour shows what happens on a project that never ran."""
    folder = tmp_path_factory.mktemp("documents")
    typed_in(folder)("init", "beacon", "--demo")
    return typed_in(folder / "beacon")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", having("console"), ids=name)
def test_commands_print_what_is_shown(
    document: Path, beacon: Any, typed_in: Callable[[Path], Any], tmp_path: Path
) -> None:
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for block in blocks(document, "console"):
        for (program, *arguments), shown in block.typed:
            if program == "make":
                assert set(arguments) <= set(targets), f"{name(document)}: make {' '.join(arguments)}"
                continue
            assert program in ("penstock", "python", "cd"), f"{name(document)}: {program} cannot be tried here"
            if program == "cd":
                continue
            if program == "python":
                printed = beacon.python(*arguments)
            else:
                place = typed_in(tmp_path) if arguments[0] == "init" else beacon
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


@pytest.mark.parametrize("document", DOCUMENTS + EXAMPLES, ids=name)
def test_every_block_is_tried_or_marked_as_text(document: Path) -> None:
    assert {block.language for block in blocks(document)} <= LANGUAGES
    assert document.read_text().count("\n```") == 2 * len(blocks(document)), "a fence is not closed"
    for block in blocks(document, "console"):
        assert not block.note or re.fullmatch(r"exit=\d+", block.note)
        assert block.text.startswith("$ ")


@pytest.mark.parametrize("document", DOCUMENTS + EXAMPLES, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in _LINK.findall(FENCE.sub("", document.read_text())):
        path, _, heading = link.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), f"{name(document)} links to {link}"
        assert not heading or heading in anchors(there), f"{name(document)} links to {link}"


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS + EXAMPLES, ids=name)
def test_commands_and_options_that_are_named_exist(document: Path) -> None:
    text = document.read_text()
    commands, options = known_commands(), known_options()
    for command in re.findall(r"(?:`|^\$ |^  )penstock ([a-z]+)", text, re.MULTILINE):
        assert command in commands, f"{name(document)}: penstock {command}"
    for option in re.findall(r"(?<=[\s`(])--([a-z][a-z-]+)", text):
        assert f"--{option}" in options, f"{name(document)}: --{option}"


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    terms = re.findall(r"^\| ([A-Za-z -]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)[1:]
    assert terms == sorted(set(terms), key=str.casefold)


@pytest.mark.parametrize("document", DOCUMENTS + EXAMPLES, ids=name)
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


COMING = ROOT / "docs" / "coming-from.md"
UNBUILT = "not built yet"
FOREIGN_WORDS = {
    "change after the fact": """
        dataset dataset_uuid dataset_version partition_versions partition_key PerPartition PerUpdate execution_strategy
        dataset_cursors cursor_value data_invalidations row_filter row_range invalidation_id update_strategy replace
        append unique_key dedupe_key config_hash schema_hash dag_version dispatcher _SUCCESS _manifest.json
        bootstrap.reset_outputs scaling.max_concurrency reorg reconciliation staging
        """,
    "intervals": """
        external database table partition position ttl cache incremental_scan_interval full_scan_interval lag exec
        interval.min interval.max schedules schedule forwardfill backfill limits.min limits.max tags dependencies
        defaultDatabase models.external.paths models.transformations.paths adminDatabase adminTable admin.cbt
        allow_partial_intervals min_partial_interval min_valid max_valid consolidation coordinator queues concurrency
        shutdownTimeout metricsAddr healthCheckAddr logging self.database self.table self.partition self.interval
        task.start bounds.start bounds.end range.start range.end clickhouse.cluster clickhouse.local_suffix
        cache.is_incremental_scan cache.is_full_scan cache.previous_min cache.previous_max updated_date_time chaos
        BOUNDS_START BOUNDS_END RANGE_START RANGE_END TASK_START TASK_MODEL TASK_INTERVAL SELF_DATABASE SELF_TABLE
        SELF_PARTITION MaxRetry QueuePatterns ConcurrencyPerQueue MaxConcurrency OR
        """,
    "dynamic tables": """
        dynamic_tables schema_name query_sql target_lag group_by_columns refresh_strategy deduplicate
        cardinality_threshold status source_snapshots last_snapshot upstream downstream refresh_history strategy_used
        rows_affected duration_ms error_message pending_refreshes next_refresh_due priority refresh_claims worker_id
        claimed_at heartbeat_at expires_at refresh_subtasks subtasks_total subtasks_completed allow_parallel_refresh
        parallel_threshold max_parallelism AFFECTED_KEYS FULL ACTIVE PAUSED FAILED
        """,
}


def mapped() -> list[list[str]]:
    """The rows of the tables that map words: theirs, ours, where to see it, and the test."""
    rows = re.findall(r"^\| (.*) \|$", FENCE.sub("", COMING.read_text()), re.MULTILINE)
    return [row.split(" | ") for row in rows if not row.startswith("Their word")]


def test_every_word_that_is_mapped_has_a_test_unless_it_is_not_built_yet() -> None:
    known = {
        f"{file.relative_to(ROOT / 'tests').as_posix()}::{node.name}"
        for file in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(mapped()) > 100
    for row in mapped():
        theirs, _, _, test = row
        assert test == UNBUILT or test.strip("`") in known, f"{theirs}: {test}"


def test_every_word_of_other_systems_is_mapped() -> None:
    theirs = " ".join(row[0] for row in mapped())
    found = set(re.findall(r"[\w.]+", theirs)) | set(re.findall(r"\w+", theirs))
    for subject, words in FOREIGN_WORDS.items():
        assert not set(words.split()) - found, subject
