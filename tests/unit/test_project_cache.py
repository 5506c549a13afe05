"""Files that have not changed are not parsed again, and what is remembered is the same project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fuzzing import FUZZ, effort
from hypothesis import given
from hypothesis import strategies as st
from written_project import CONFIG, ORDERS, SHOP, front, model, written

from penstock.errors import UsageError
from penstock.project import Project, assembly, kept, load, unpack
from penstock.project.reading import toolchain
from penstock.project.reading.cache import Cache
from penstock.values.models import Check, Chunking, Dependency, IntervalModel, Schedules, Source

FACTS = ("graph", "fingerprints", "warnings", "revision", "files", "settings")


def same(one: Project, other: Project) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in FACTS)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that files are really read."""
    calls: list[str] = []
    real = assembly.assembled

    def noted(*given: object) -> object:
        calls.append("assembled")
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(assembly, "assembled", noted)
    return calls


# Projects of every kind of key, drawn by chance.

SOURCES = [
    ORDERS,
    ORDERS + "lag: 2 minutes\ndescription: 'ünïcode ${HOME}'\ntags: [a, 1]\n",
    "location: ${PLACE}/orders\nposition: ordered_at\nenv: {KEY: '${KEY}', PLAIN: x}\n",
    "location: ./x\nformat: parquet\nposition: ordered_at\nscan: {full: 1 hour}\nexec: [a, 'b c']\nrecheck: 1h\n",
    "location: $${PLACE}\nposition: ordered_at\ncompleteness: inclusive\nretries: 0\n",
]
KEYS = [
    "tags: [slow, 2]\n",
    "checks: [{not_null: [a, b]}, {accepted_values: {column: a, values: [1, x, 2.5, true]}}, {row_count: {min: 1}}]\n",
    "limits: {min: 2026-01-01, max: 2027-01-01}\n",
    "env: {KEY: '${KEY}'}\n",
    "fill: {direction: tail, buffer: 1h, backfill: oldest}\n",
    "schedules: {forwardfill: '@hourly', backfill: off}\n",
    "update_strategy: append\nunique_key: [at, a]\n",
    "dependencies: [[raw.orders, raw.other], {model: raw.lookup, on_change: rerun, optional: true}]\n",
    "cluster_by: a\ntimeout: 1 week\ndeduplicate: false\n",
    "description: |\n  two\n  lines\n",
]
QUERIES = [
    "select ordered_at as at, a, b from {{ ref('raw.orders') }}",
    "select ordered_at as at, '{{ env.PROJECT }}' as a, {{ var('n') }} as b from {{ ref('orders') }}",
    "select ordered_at as at, 1 as a from {{ ref('raw.orders') }} where {{ in_bounds('ordered_at') }}",
]


@st.composite
def projects(draw: st.DrawFn) -> dict[str, str]:
    files = {"penstock.yml": CONFIG + "env: {PROJECT: '${KEY}x'}\nvars: {n: 5, m: 1.5, t: text}\n"}
    files["models/external/orders.yml"] = draw(st.sampled_from(SOURCES))
    files["models/external/other.yml"] = ORDERS
    files["models/external/lookup.yml"] = "location: ./lookup\n"
    for number in range(draw(st.integers(0, 3))):
        keys = "interval: 1h\nposition: at\n" + "".join(draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=4)))
        files[f"models/transformations/m{number}.sql"] = front(keys, draw(st.sampled_from(QUERIES)))
    return files


@effort(20)
@given(projects(), st.sampled_from(["", "secret"]))
def test_a_remembered_project_is_the_same_project(files: dict[str, str], secret: str) -> None:
    environ = {"KEY": secret, "PLACE": "/data", "HOME": "/root"}
    with TemporaryDirectory() as scratch:
        root, cache = written(Path(scratch), files), Path(scratch) / "cache"
        cold = load(root, environ)
        first, warm = load(root, environ, cache=cache), load(root, environ, cache=cache)
        assert same(cold, first)
        assert same(cold, warm)
        assert same(cold, unpack(cold.files, root, environ, cache=cache))
        assert secret not in "".join(file.read_text() for file in cache.iterdir()) or not secret


def test_nothing_is_parsed_when_nothing_changed(tmp_path: Path, parsed: list[str]) -> None:
    root, cache = written(tmp_path, SHOP), tmp_path / "cache"
    for _ in range(3):
        load(root, {}, cache=cache)
    assert parsed == ["assembled"]


def test_whatever_changes_is_read_again(tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIG + "env: {A: '${A}'}\ntargets: {dev: {}, prod: {}}\n"
    root, cache = written(tmp_path, {**SHOP, "penstock.yml": config}), tmp_path / "cache"

    def read_again(environ: dict[str, str], target: str | None = None, config: Path | None = None) -> bool:
        parsed.clear()
        load(root, environ, target, config, cache)
        return bool(parsed)

    assert read_again({"A": "1"})
    assert not read_again({"A": "1", "B": "unused"})
    assert read_again({"A": "2"})
    assert read_again({"A": "1"}, "prod")
    assert read_again({"A": "1"}, config=root / "penstock.yml")
    hourly = root / "models" / "transformations" / "hourly.sql"
    hourly.write_text(hourly.read_text() + "-- more")
    assert read_again({"A": "1"})
    (root / "models" / "external" / "orders.yml").rename(root / "models" / "external" / "renamed.yml")
    (root / "models" / "external" / "renamed.yml").write_text(ORDERS + "table: orders\n")
    assert read_again({"A": "1"})
    assert not read_again({"A": "1"})
    monkeypatch.setattr(toolchain, "versions", lambda: {"sqlglot": "another"})
    toolchain.identity.cache_clear()
    assert read_again({"A": "1"})
    monkeypatch.undo()
    toolchain.identity.cache_clear()


def test_negative_control_a_key_that_does_not_follow_the_files_gives_a_stale_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cache = written(tmp_path, SHOP), tmp_path / "cache"
    monkeypatch.setattr("penstock.project.project._Bundle.key", lambda bundle, revision: "always the same")
    load(root, {}, cache=cache)
    hourly = root / "models" / "transformations" / "hourly.sql"
    hourly.write_text(hourly.read_text().replace("as orders", "as n"))
    assert not same(load(root, {}), load(root, {}, cache=cache))


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b"\x80\x04N.",
        b"[" * 100_000,
        b"null\nnull",
    ],
)
def test_a_damaged_entry_changes_nothing(tmp_path: Path, damage: bytes) -> None:
    root, cache = written(tmp_path, SHOP), tmp_path / "cache"
    before = load(root, {}, cache=cache)
    for file in cache.iterdir():
        file.write_bytes(damage)
    assert same(before, load(root, {}, cache=cache))


@effort(30)
@given(st.data())
def test_any_changed_byte_of_an_entry_changes_nothing(data: st.DataObject) -> None:
    with TemporaryDirectory() as scratch:
        root, cache = written(Path(scratch), SHOP), Path(scratch) / "cache"
        before = load(root, {}, cache=cache)
        for file in cache.iterdir():
            content = bytearray(file.read_bytes())
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] ^= data.draw(st.integers(1, 255))
            file.write_bytes(content[: data.draw(st.sampled_from([len(content), place]))])
        assert same(before, load(root, {}, cache=cache))


def test_negative_control_without_its_checksum_a_changed_entry_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.project.reading.cache._head", lambda key, body: b"trusted")
    root, cache = written(tmp_path, SHOP), tmp_path / "cache"
    load(root, {}, cache=cache)
    for file in cache.glob("project-*.json"):
        file.write_text(file.read_text().replace("count(*)", "count(1)"))
    assert "count(1)" in model(load(root, {}, cache=cache), "shop.hourly").sql


def test_an_entry_of_the_right_sum_and_the_wrong_shape_changes_nothing(tmp_path: Path) -> None:
    root, cache = written(tmp_path, SHOP), tmp_path / "cache"
    before = load(root, {}, cache=cache)
    heads = {file.stem: file.read_bytes().split(b" ")[3].decode() for file in cache.iterdir()}
    for name, key in heads.items():
        good = Cache(cache).read(name, key)
        assert good is not None
        for wrong in ([], {"models": 3}, {"models": [{"type": "interval"}], "fingerprints": {}, "warnings": []}, 7):
            Cache(cache).write(name, key, wrong)
            assert same(before, load(root, {}, cache=cache))


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    root = written(tmp_path, SHOP)
    (tmp_path / "file").write_text("")
    assert same(load(root, {}), load(root, {}, cache=tmp_path / "file" / "cache"))


def test_a_cache_stays_small_and_private(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    left = tmp_path / "cache" / ".killed.new"
    left.write_text("half")
    os.utime(left, (0, 0))
    for number in range(40):
        cache.write(f"project-{number}", "key", {"n": number})
    found = sorted((tmp_path / "cache").iterdir())
    assert len(found) == 12
    assert not left.exists()
    assert cache.read("project-39", "key") == {"n": 39}
    assert {file.stat().st_mode & 0o777 for file in found} == {0o600}


def test_many_processes_may_read_and_write_at_once(tmp_path: Path) -> None:
    root, cache = written(tmp_path, SHOP), tmp_path / "cache"
    code = "import sys; from pathlib import Path; from penstock.project.reading.cache import Cache\n"
    code += "c = Cache(Path(sys.argv[1]))\n"
    code += f"for n in range({200 if FUZZ else 60}):\n  v = c.read('x', 'k'); assert v is None or len(set(v)) == 1, v\n"
    code += "  c.write('x', 'k', [int(sys.argv[2])] * 5000)"
    running = [subprocess.Popen([sys.executable, "-c", code, str(cache), str(n)]) for n in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    assert same(load(root, {}), load(root, {}, cache=cache))


def test_every_field_of_a_model_survives() -> None:
    chunking = Chunking(max=4, min=0, align=2)
    made = IntervalModel(
        name="a.b",
        file="f",
        sql="s",
        position="p",
        axis="x",
        interval=chunking,
        dependencies=((Dependency("x.y", 1),),),
    )
    changed = replace(
        made, checks=(Check("unique", {"columns": ("a", "b"), "deep": {"x": (1, (2,))}}, "warn"),),
        schedules=Schedules("@hourly", None), tags=("t",), stand_ins={"x.y": "x.z"}, widens=True, retries=0,
    )  # fmt: skip
    for one in (made, changed, Source(name="a.s", file="g", exec=("x", "y"), recheck=0)):
        record = json.loads(json.dumps(kept.plain(one)))
        assert kept.value_of(type(one), record) == one


def test_a_compiled_sqlglot_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.require_plain_parser()
    (tmp_path / "parser.py").touch()
    monkeypatch.setattr(toolchain, "_folders", lambda _: [tmp_path])
    toolchain.require_plain_parser()
    (tmp_path / "parser.cpython-311-x86_64-linux-gnu.so").touch()
    with pytest.raises(UsageError, match="compiled") as caught:
        toolchain.require_plain_parser()
    assert "pip uninstall sqlglotc" in (caught.value.hint or "")
