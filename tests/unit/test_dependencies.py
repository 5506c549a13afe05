"""Do the bounds of our dependencies admit what is tested, and nothing that cannot work?"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINNED = {
    canonicalize_name(name): release
    for name, _, release in (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    if release
}
WANTED = [Requirement(one) for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    assert [one.name for one in WANTED if not one.specifier.contains(PINNED[canonicalize_name(one.name)])] == []


def test_no_other_sqlglot_than_one_whose_trees_are_known_is_admitted() -> None:
    (sqlglot,) = (one.specifier for one in WANTED if one.name == "sqlglot")
    assert not any(sqlglot.contains(release) for release in ("26.0.0", "29.0.1", "30.0.0", "31.0.0"))
    assert sqlglot.contains(PINNED[canonicalize_name("sqlglot")])
