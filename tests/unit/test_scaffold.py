"""Does `init` write a project, and nothing over anybody's files?"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from penstock.errors import UsageError
from penstock.project.project import load
from penstock.runtime.place import scaffold
from penstock.runtime.place.scaffold import create


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's files alone; the data have their own tests."""
    monkeypatch.setattr("penstock.runtime.place.demo.generate", lambda project: None)


def files_in(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_the_starter_has_a_source_a_model_and_a_gitignore(tmp_path: Path) -> None:
    created = create(tmp_path / "shop", demo=False)
    assert files_in(created.directory) == list(created.files)
    assert list(created.files) == [
        ".gitignore",
        "README.md",
        "models/external/orders.yml",
        "models/transformations/orders_hourly.sql",
        "penstock.yml",
    ]
    ignored = (created.directory / ".gitignore").read_text().split()
    assert {".penstock/", "warehouse/"} <= set(ignored)


@pytest.mark.usefixtures("without_data")
def test_the_demo_has_three_sources_and_seven_models_all_described(tmp_path: Path) -> None:
    created = create(tmp_path / "d", demo=True)
    models = {Path(name).stem: (created.directory / name).read_text() for name in created.files if "models/" in name}
    assert sorted(name for name in created.files if name.startswith("models/external/")) == [
        "models/external/beacon_blocks.yml",
        "models/external/relay_blocks.yml",
        "models/external/validator_entity.yml",
    ]
    assert len(models) == 10
    assert all("\ndescription: " in "\n" + text for text in models.values())
    readme = (created.directory / "README.md").read_text()
    assert [name for name in models if name not in readme] == []


@pytest.mark.usefixtures("without_data")
@pytest.mark.parametrize(("demo", "sources", "models"), [(False, 1, 1), (True, 3, 7)])
def test_both_projects_load_without_errors_or_warnings(tmp_path: Path, demo: bool, sources: int, models: int) -> None:
    project = load(create(tmp_path / "new", demo=demo).directory, {})
    assert project.warnings == ()
    assert len(project.graph.built) == models
    assert len(project.graph.models) == sources + models
    assert {source.axis for source in project.graph.sources} == {"second"}
    assert {model.axis for model in project.graph.interval_models} == {"second"}


@pytest.mark.usefixtures("without_data")
def test_the_demo_has_a_dynamic_table_over_intervals(tmp_path: Path) -> None:
    graph = load(create(tmp_path / "d", demo=True).directory, {}).graph
    (table,) = graph.dynamic_models
    assert graph.parents(table.name) == ("beacon.block_propagation",)


@pytest.mark.usefixtures("without_data")
def test_the_demo_shows_a_look_back_an_or_group_and_several_interval_sizes(tmp_path: Path) -> None:
    graph = load(create(tmp_path / "d", demo=True).directory, {}).graph
    models = {model.name: model for model in graph.interval_models}
    assert [one.before for one in models["beacon.block_entity"].inputs] == [0, 24 * 3600]
    assert [len(group) for group in models["beacon.block_network"].dependencies] == [2, 1]
    rollups = ("minute_stats", "five_minute_stats", "hourly_stats")
    assert [models[f"beacon.{name}"].interval.max for name in rollups] == [600, 1800, 3600]
    assert all(models[f"beacon.{name}"].widens for name in (*rollups, "block_propagation"))


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("shop", "shop"),
        ("My Shop (2)", "my_shop_2"),
        ("2026", "project_2026"),
        ("true", "project_true"),
        ("æøå", "project"),
    ],
)
def test_the_starter_is_named_after_its_folder(tmp_path: Path, folder: str, name: str) -> None:
    create(tmp_path / folder, demo=False)
    assert yaml.safe_load((tmp_path / folder / "penstock.yml").read_text())["name"] == name


def test_the_next_commands_can_be_pasted_whatever_the_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert create(tmp_path / "a b", demo=False).next == (f"cd '{tmp_path}/a b' && penstock validate", "penstock run")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert create(Path(), demo=False).next == ("penstock validate", "penstock run")


def test_an_existing_project_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text("name: mine\n")
    with pytest.raises(UsageError, match="already holds a project"):
        create(tmp_path, demo=False)
    assert (tmp_path / "penstock.yml").read_text() == "name: mine\n"
    assert files_in(tmp_path) == ["penstock.yml"]


@pytest.mark.parametrize("demo", [False, True])
@pytest.mark.parametrize("theirs", ["notes.txt", "README.md", "landing/beacon_blocks/part-0.parquet", "models/a/b.sql"])
def test_a_directory_that_holds_other_files_is_refused_by_their_names(tmp_path: Path, theirs: str, demo: bool) -> None:
    (tmp_path / theirs).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / theirs).write_text("theirs")
    with pytest.raises(UsageError, match=f"not empty: it holds {theirs}") as caught:
        create(tmp_path, demo=demo)
    assert caught.value.hint is not None
    assert files_in(tmp_path) == [theirs]


def test_without_the_refusal_their_files_would_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("theirs")
    monkeypatch.setattr(scaffold, "_refuse_to_overwrite", lambda *_: None)
    create(tmp_path, demo=False)
    assert (tmp_path / "README.md").read_text() != "theirs"


def test_an_empty_repository_may_become_a_project(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    create(tmp_path, demo=False)
    assert (tmp_path / "penstock.yml").exists()


def test_an_interrupted_init_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(project: Path) -> None:
        (project / "landing" / "beacon_blocks").mkdir(parents=True)
        (project / "landing" / "beacon_blocks" / "half.parquet").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.runtime.place.demo.generate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "d", demo=True)
    assert not (tmp_path / "d" / "penstock.yml").exists()
    monkeypatch.setattr("penstock.runtime.place.demo.generate", lambda project: None)
    create(tmp_path / "d", demo=True)
    assert (tmp_path / "d" / "penstock.yml").exists()


def test_a_file_in_the_way_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not a directory"):
        create(tmp_path / "file", demo=False)
    with pytest.raises(UsageError, match="cannot write the project"):
        create(tmp_path / "file" / "below", demo=False)
