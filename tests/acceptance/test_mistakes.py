"""A project with many kinds of mistakes: all of them are reported, each with its place and a way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Shell = Any


def model(sql: str, interval: str = "100", position: str = "n", more: str = "") -> str:
    return f"---\ninterval: {interval}\nposition: {position}\n{more}---\n{sql}\n"


FILES = {
    "penstock.yml": "name: wrong\ndatabases: {external: raw, transformation: t}\nwarehose: ./there\n",
    "models/external/orders.yml": "location: ./landing\npositon: at\n",
    "models/external/flagged.yml": "location: ./x\nposition: at\nexternal: false\n",
    "models/external/blocks.yml": "location: ./blocks\nposition: n\naxis: block\n",
    "models/transformations/late.sql": model("select 1 as hour from {{ ref('raw.nobody') }}", "1 hour", "hour"),
    "models/transformations/name.sql": model(
        "select {{ bound.start }} as at from {{ ref('raw.flagged') }}", "60", "at"
    ),
    "models/transformations/lag.sql": model("select n from {{ ref('raw.blocks') }}", more="target_lag: 1 minute\n"),
    "models/transformations/axis.sql": model("select n from {{ ref('raw.blocks') }}", more="axis: second\n"),
    "models/transformations/two.sql": model("select n from {{ ref('raw.blocks') }}; drop table x"),
    "models/transformations/a.sql": model("select n from {{ ref('t.b') }}"),
    "models/transformations/b.sql": model("select n from {{ ref('t.a') }}"),
    "models/transformations/more/a.sql": model("select n from {{ ref('raw.blocks') }}"),
    "models/transformations/quote.sql": model("select 1 as n", more="dependencies: [{{external}}.blocks]\n"),
}
WORDS = ("warehouse", "position", "raw.nobody", "bound", "target_lag", "external", "axis", "t.a", "one SELECT", "quote")


def test_one_run_reports_every_mistake_with_its_place(tmp_path: Path, shell_in: Callable[[Path], Shell]) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shell = shell_in(tmp_path)
    answer = json.loads(shell("validate", "--json", code=2).out)["error"]
    said = "\n".join(f"{one['file']}:{one['line']} {one['message']} {one['hint']}" for one in answer["errors"])
    assert len(answer["errors"]) >= 10, said
    assert all(one["file"] and one["line"] for one in answer["errors"]), said
    assert [word for word in WORDS if word not in said] == [], said
    text = shell("run", code=2)
    assert "models/external/orders.yml:2" in text.err
    assert not (tmp_path / ".penstock" / "pg").exists()


def test_a_folder_without_a_project_says_what_to_do(tmp_path: Path, shell_in: Callable[[Path], Shell]) -> None:
    answer = shell_in(tmp_path)("status", code=2)
    assert "penstock init" in answer.err


def test_a_server_that_does_not_answer_is_exit_code_3(tmp_path: Path, shell_in: Callable[[Path], Shell]) -> None:
    (tmp_path / "penstock.yml").write_text(
        "name: far\ntargets: {prod: {state: 'postgresql://nobody@127.0.0.1:1/x', warehouse: /tmp/x}}\n"
    )
    answer = shell_in(tmp_path)("status", "--json", code=3)
    assert json.loads(answer.out)["error"]["kind"] == "state"


def test_a_query_that_intervals_cannot_share_is_noted_with_its_reason(
    tmp_path: Path, shell_in: Callable[[Path], Shell]
) -> None:
    files = {
        "penstock.yml": "name: apart\ndatabases: {external: raw, transformation: t}\n",
        "models/external/blocks.yml": "location: ./blocks\nposition: n\naxis: block\n",
        "models/transformations/sampled.sql": model("select n from {{ ref('raw.blocks') }} limit 3"),
        "models/transformations/kinds.sql": model(
            "select max(n) as n, kind from {{ ref('raw.blocks') }} group by kind"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shell = shell_in(tmp_path)
    why = "each interval has a query of its own: it has LIMIT"
    assert f"note: models/transformations/sampled.sql: {why}" in shell("validate").out
    (note,) = json.loads(shell("validate", "--json").out)["notes"]
    assert note["message"].startswith(why)
    assert why in shell("explain", "t.sampled").out
    assert "query of its own" not in shell("explain", "t.kinds").out
