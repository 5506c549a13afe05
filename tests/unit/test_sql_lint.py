"""The SQL files: nothing newer than PostgreSQL 14, one clock, a reason above every statement."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from penstock.state.database.migrate import migrations
from penstock.state.database.statements import statement, statements

STATE = Path(str(files("penstock.state")))
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(STATE.glob("*/*.sql"))}

NEWER_THAN_14 = {
    "15": [
        r"\bmerge\s+into\b",
        r"\bnulls\s+(not\s+)?distinct\b",
        r"\bregexp_(count|instr|like|substr)\b",
        r"\bsecurity_invoker\b",
        r"\brange_intersect_agg\s*\(\s*\w*multi",
        r"\brange_agg\s*\(\s*(\w+\.)?(ranges|remaining|covered|stale|claim_range)\b",
    ],
    "16": [
        r"\bany_value\b",
        r"\bis\s+(not\s+)?json\b",
        r"\bjson_(array|object)(agg)?\s*\(",
        r"\barray_(shuffle|sample)\b",
        r"\brandom_normal\b",
        r"\bdate_(add|subtract)\b",
        r"\bpg_input_is_valid\b",
        r"\bsystem_user\b",
        r"(?<![\w.%])\d+_\d",
        r"\b0[xob][0-9a-f]",
    ],
    "17": [
        r"\bjson_(table|exists|value|query|scalar|serialize)\b",
        r"\bat\s+local\b",
        r"\bto_(bin|oct)\b",
        r"\bmerge_action\b",
        r"\bon_error\b",
    ],
    "18": [
        r"\buuidv[47]\b",
        r"\bvirtual\b",
        r"\bwithout\s+overlaps\b",
        r"\breturning\s+.*\b(old|new)\.",
        r"\barray_(sort|reverse)\b",
        r"\bcasefold\b",
        r"\bnot\s+enforced\b",
    ],
    "an extension": [r"\bcreate\s+extension\b", r"\buuid_generate_v\d", r"\bgin_trgm_ops\b", r"\bdigest\s*\("],
}


def code(text: str) -> str:
    return re.sub(r"--[^\n]*", "", text).lower()


def newer(text: str) -> list[str]:
    return [
        f"{since}: {found.group()}"
        for since, patterns in NEWER_THAN_14.items()
        for pattern in patterns
        for found in re.finditer(pattern, code(text))
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_is_newer_than_postgresql_14(name: str) -> None:
    assert newer(TEXTS[name]) == []


@pytest.mark.parametrize(
    "text",
    [
        "MERGE INTO task USING x ON true",
        "create unique index i on t (a) nulls not distinct",
        "select any_value(a) from t",
        "select * from json_table(a, '$')",
        "select a is json from t",
        "select 1_000",
        "select uuidv7()",
        "create extension btree_gist",
        "select range_agg(t.ranges) from task t",
    ],
)
def test_the_lint_sees_what_is_newer(text: str) -> None:
    assert newer(text)


@pytest.mark.parametrize("name", TEXTS)
def test_only_the_schemas_own_clock_is_read(name: str) -> None:
    text = code(TEXTS[name])
    assert not re.search(
        r"\bnow\(\)|\bcurrent_(timestamp|date|time)\b|\blocaltime|\b(statement|transaction)_timestamp", text
    )
    allowed = {"0001_definitions.sql": 1, "migrate.sql": 1}.get(name, 0)
    assert text.count("clock_timestamp") == allowed


@pytest.mark.parametrize("name", sorted(statements()))
def test_every_statement_says_why_and_is_used(name: str) -> None:
    first, *rest = statement(name).decode().splitlines()
    assert re.match(r"-- [A-Z`]", first), "one line of why above the statement"
    assert rest
    assert any(f'"{name}"' in path.read_text(encoding="utf-8") for path in STATE.rglob("*.py")), "nobody runs it"


def test_migrations_are_numbered_without_holes() -> None:
    assert [one.name[:4] for one in migrations()] == [f"{i:04}" for i in range(1, len(migrations()) + 1)]


def test_lines_are_readable() -> None:
    long = [
        f"{name}:{no}"
        for name, text in TEXTS.items()
        for no, line in enumerate(text.splitlines(), 1)
        if len(line) > 125
    ]
    assert long == []


def test_a_statement_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        statement("nothing of the kind")
