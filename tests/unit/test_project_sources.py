"""What does a source say, and what may it not say?"""

from __future__ import annotations

from pathlib import Path

import pytest
from written_project import CONFIG, SHOP, front, mistakes, read, source


def test_a_source_says_how_it_is_observed(tmp_path: Path) -> None:
    text = "location: /d\nformat: PARQUET\npartition: n\naxis: block\nlag: 3\nttl: 30s\n"
    text += "completeness: watermark\n"
    found = source(read(tmp_path, {"penstock.yml": CONFIG, "models/external/b.yml": text}), "raw.b")
    assert (found.format.name, found.position, found.axis, found.axis_declared) == ("parquet", "n", "block", True)
    assert (found.lag, found.completeness) == (3, "watermark")
    assert (found.incremental_scan_seconds, found.full_scan_seconds) == (30, 30)


@pytest.mark.parametrize(("axis", "completeness"), [("second", "watermark"), ("block", "inclusive")])
def test_whether_the_last_position_is_complete_follows_from_the_axis(
    tmp_path: Path, axis: str, completeness: str
) -> None:
    files = {"penstock.yml": CONFIG, "models/external/b.yml": f"location: x\nposition: n\naxis: {axis}\n"}
    assert source(read(tmp_path, files), "raw.b").completeness == completeness


def test_a_source_without_a_position_is_a_lookup(tmp_path: Path) -> None:
    found = source(read(tmp_path, {"penstock.yml": CONFIG, "models/external/b.yml": "location: x\n"}), "raw.b")
    assert (found.position, found.axis, found.completeness) == (None, None, None)


def test_an_assumed_axis_is_told_apart_from_a_written_one(tmp_path: Path) -> None:
    found = source(read(tmp_path, SHOP), "raw.orders")
    assert (found.axis, found.axis_declared) == ("second", False)


def test_a_source_may_ask_a_query_or_a_program(tmp_path: Path) -> None:
    files = {
        "penstock.yml": CONFIG,
        "models/external/q.sql": front(
            "location: x\nposition: at\n", "select min(at) as min, max(at) as max from {{ self.relation }}"
        ),
        "models/external/p.yml": "location: x\nposition: at\nexec: python scripts/bounds.py --table 'a b'\n",
        "scripts/bounds.py": "print()\n",
    }
    project = read(tmp_path, files)
    assert source(project, "raw.q").bounds_sql is not None
    assert source(project, "raw.p").exec == ("python", "scripts/bounds.py", "--table", "a b")
    assert project.files["scripts/bounds.py"] == b"print()\n"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select min(at) as min from {{ self.relation }}", "needs the columns min and max"),
        ("select 1 as min, {{ cache.previous_max }} as max", "not known in the first scan"),
        ("select 1 as min, {{ bounds.start }} as max", "'bounds', which is undefined"),
        ("select min(at) as min, max(at) as max from {{ ref('raw.orders') }}", "reads its own table only"),
        ("delete from x", "starts with 'DELETE'"),
    ],
)
def test_a_wrong_bounds_query_is_an_error(tmp_path: Path, query: str, said: str) -> None:
    files = {**SHOP, "models/external/q.sql": front("location: x\nposition: at\n", query)}
    found = mistakes(tmp_path, files)
    assert len(found) == 1
    assert found[0].startswith("models/external/q.sql:5: ")
    assert said in found[0]


@pytest.mark.parametrize("key", ["lag: 3", "completeness: inclusive", "axis: block"])
def test_what_is_about_positions_needs_a_position(tmp_path: Path, key: str) -> None:
    files = {"penstock.yml": CONFIG, "models/external/b.yml": f"location: x\n{key}\n"}
    found = mistakes(tmp_path, files)
    assert len(found) == 1
    assert "needs `position`" in found[0]


def test_what_sources_cannot_do_yet_is_refused(tmp_path: Path) -> None:
    for text, said in (
        ("location: x\nformat: csv\nrecheck: 3\n", "b.yml:3: 'recheck' needs `position`"),
        ("position: at\n", "b.yml:1: raw.b: a source needs a location; a table that only a catalog knows is not built"),
        ("position: at\nexec: x\n", "b.yml:1: raw.b: a source needs a location"),
    ):
        (found,) = mistakes(tmp_path, {"penstock.yml": CONFIG, "models/external/b.yml": text})
        assert said in found
    elsewhere = CONFIG + "overrides: {raw.b: {location: y}}\n"
    files = {"penstock.yml": elsewhere, "models/external/b.yml": "position: at\n"}
    assert source(read(tmp_path, files), "raw.b").location == "y"
