"""How is Spark started, shared between attempts and stopped?"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine import jars
from penstock.engine.java import Java, find
from penstock.errors import SparkError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_DUMP_SECONDS = 90
_DYING_SECONDS = 5.0
_HADOOP = {
    "AWS_ACCESS_KEY_ID": "spark.hadoop.fs.s3a.access.key",
    "AWS_SECRET_ACCESS_KEY": "spark.hadoop.fs.s3a.secret.key",
    "AWS_SESSION_TOKEN": "spark.hadoop.fs.s3a.session.token",
    "AWS_ENDPOINT_URL": "spark.hadoop.fs.s3a.endpoint",
    "AWS_REGION": "spark.hadoop.fs.s3a.endpoint.region",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """What a target says about Spark. `cache` keeps jars, class archives and logs between runs."""

    cache: Path
    environ: Mapping[str, str]
    app_name: str = "penstock"
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict)
    """Options of the object store as delta-rs names them; the common ones are told to Spark too."""
    quick: bool = False
    """Start sooner and peak lower: for tests and short local runs."""

    @property
    def local(self) -> bool:
        return self.master.startswith("local")


class Attempt:
    """One attempt's own session: its views, confs and job group are nobody else's."""

    def __init__(self, spark: SparkSession, group: str) -> None:
        self.spark, self.group = spark, group
        self.timed_out = False

    @property
    def jobs(self) -> int:
        """How many Spark jobs ran in this attempt so far."""
        context = self.spark.sparkContext
        assert context._jsc is not None  # noqa: S101
        context._jsc.sc().listenerBus().waitUntilEmpty()  # jobs are counted by a listener, which may lag behind
        return len(context.statusTracker().getJobIdsForGroup(self.group))


class Session:
    """The one Spark session of a process; nothing is started before it is first used."""

    def __init__(self, settings: SparkSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._gateway: JavaGateway | None = None
        self._archive: tuple[Path, Path] | None = None
        self.on_death: Callable[[], None] | None = None
        """Told when the JVM ends although nobody stopped it."""

    @property
    def started(self) -> bool:
        return self._spark is not None

    @property
    def keeps_classes(self) -> bool:
        """Whether stopping takes a while, because the JVM then writes the archive that makes later starts quick."""
        return self._archive is not None

    @property
    def alive(self) -> bool:
        """False once the JVM is gone although nobody stopped it."""
        return self._gateway is None or self._gateway.proc is None or self._gateway.proc.poll() is None

    def spark(self) -> SparkSession:
        """The shared session, started at the first call."""
        with self._lock:
            if self._spark is None:
                self._spark = self._start()
            return self._spark

    @contextmanager
    def attempt(self, group: str, about: str = "", timeout_seconds: float | None = None) -> Iterator[Attempt]:
        """A session of its own for one attempt; `cancel(group)` from another thread ends its jobs."""
        attempt = self._begun(group, about)
        timer = None if timeout_seconds is None else threading.Timer(timeout_seconds, self._expire, (attempt,))
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield attempt
        finally:
            if timer is not None:
                timer.cancel()
            self._leave_group(attempt.spark.sparkContext)

    def cancel(self, group: str) -> None:
        """End what runs in `group` and whatever it would start later."""
        spark = self._spark
        if spark is not None:
            with self._perhaps_gone():
                assert spark.sparkContext._jsc is not None  # noqa: S101
                spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)

    def stop(self, *, quick: bool = False) -> None:
        """`quick`: end the JVM now, whatever it is doing and whatever it would keep for later starts."""
        with self._lock:
            spark, self._spark = self._spark, None
            gateway, self._gateway = self._gateway, None
            if gateway is not None and gateway.proc is not None and (quick or gateway.proc.poll() is not None):
                _end(gateway, self._archive)
                _forget()
                return
            if spark is not None:
                spark.stop()
            if gateway is not None:
                _close(gateway, self._archive)

    def _begun(self, group: str, about: str) -> Attempt:
        from penstock.engine.failures import is_spark_error

        shared = self.spark()
        try:
            attempt = Attempt(shared.newSession(), group)
            shared.sparkContext.setJobGroup(group, about or group, True)
        except Exception as error:
            if not is_spark_error(error):
                raise
            raise SparkError(f"Spark does not answer: {error}", hint="was memory short? Its log tells more") from error
        return attempt

    def _leave_group(self, context: SparkContext) -> None:
        with self._perhaps_gone():
            for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                context.setLocalProperty(key, None)  # type: ignore[arg-type]

    @contextmanager
    def _perhaps_gone(self) -> Iterator[None]:
        """A JVM that has ended has nothing to tidy up; whoever asks next whether it lives is to hear the truth."""
        from penstock.engine.failures import is_spark_error

        try:
            yield
        except Exception as error:
            if not is_spark_error(error):
                raise
            gateway = self._gateway
            if gateway is not None and gateway.proc is not None:
                with suppress(subprocess.TimeoutExpired):
                    gateway.proc.wait(_DYING_SECONDS)

    def _watch(self, gateway: JavaGateway) -> None:
        gateway.proc.wait()
        if self._gateway is gateway and self.on_death is not None:
            self.on_death()

    def _expire(self, attempt: Attempt) -> None:
        attempt.timed_out = True
        self.cancel(attempt.group)

    def _start(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        settings = self.settings
        settings.cache.mkdir(parents=True, exist_ok=True)
        java = find(settings.environ, settings.cache)
        paths = jars.delta_jars(settings.environ, settings.cache, java.home, settings.conf)
        archive = _Archive.of(java, paths, settings)
        conf = SparkConf(loadDefaults=False)
        for key, value in configuration(settings, paths, archive.options).items():
            conf.set(key, value)
        log = settings.cache / "logs" / f"spark-{os.getpid()}.log"
        try:
            self._gateway = _launched(conf, java, settings.environ, log)
            context = SparkContext(gateway=self._gateway, conf=conf)
        except Exception as error:
            gateway, self._gateway = self._gateway, None
            if gateway is not None and gateway.proc is not None:
                gateway.proc.kill()
                _forget()
            raise SparkError(f"Spark did not start: {_tail(log) or error}", hint=f"see {log}") from error
        context.setLogLevel("ERROR")
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            logging.getLogger(name).disabled = True  # they print every error with its whole stack
        self._archive = archive.training
        threading.Thread(target=self._watch, args=(self._gateway,), name="penstock-jvm", daemon=True).start()
        return SparkSession(context)


def configuration(settings: SparkSettings, jar_paths: tuple[str, ...], java_options: tuple[str, ...]) -> dict[str, str]:
    """The confs of every session: ours, then the target's, then those that results depend on."""
    cores = str(os.cpu_count() or 2)
    conf = {
        "spark.app.name": settings.app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.databricks.delta.snapshotPartitions": "1",
        # looking at the paths we give must not become a job of its own
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        # a first VACUUM would run thousands of tasks otherwise
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.pushdown.inFilterThreshold": "1000",
        # the parts of a union are files of their own and must not be put together
        "spark.sql.unionOutputPartitioning": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.sql.warehouse.dir": str(settings.cache / "spark-warehouse"),
    }
    if settings.local:
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {_HADOOP[key]: value for key, value in settings.storage.items() if key in _HADOOP}
    conf |= settings.conf
    conf |= {
        "spark.master": settings.master,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.catalog.spark_catalog": _CATALOG,
        "spark.sql.extensions": _joined(settings.conf.get("spark.sql.extensions"), (_EXTENSION,), ","),
        "spark.driver.extraJavaOptions": _joined(
            settings.conf.get("spark.driver.extraJavaOptions"),
            ("-Duser.timezone=UTC", "-XX:-DontCompileHugeMethods", *java_options),
            " ",
        ),
        "spark.executor.extraJavaOptions": _joined(
            settings.conf.get("spark.executor.extraJavaOptions"),
            ("-Duser.timezone=UTC", "-XX:-DontCompileHugeMethods"),
            " ",
        ),
    }
    key, separator = ("spark.driver.extraClassPath", ":") if settings.local else ("spark.jars", ",")
    conf[key] = _joined(settings.conf.get(key), jar_paths, separator)
    return conf


@dataclass(frozen=True, slots=True)
class _Archive:
    """The JVM's archive of loaded classes: it makes every start but the first several seconds shorter."""

    options: tuple[str, ...]
    training: tuple[Path, Path] | None
    """Where the JVM writes a new archive when it ends, and where that belongs."""

    @classmethod
    def of(cls, java: Java, jar_paths: tuple[str, ...], settings: SparkSettings) -> _Archive:
        import pyspark

        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC") if settings.quick else ()
        # the options are split at spaces, and no quoting survives all the programs they pass through
        if not settings.local or "spark.driver.extraClassPath" in settings.conf or " " in str(settings.cache):
            return cls(options, None)
        release = Path(java.home, "bin", "java").resolve().stat()
        parts = (java.home, java.major, release.st_mtime_ns, release.st_size, pyspark.__file__, pyspark.__version__)
        key = hashlib.sha256(repr((*parts, jar_paths, settings.quick)).encode()).hexdigest()[:16]
        folder = settings.cache / "classes"
        ready, fresh = folder / f"{key}.archive", folder / f"{key}.{os.getpid()}.new"
        ahead = java.major >= 25
        quiet = ("-Xlog:disable", "-Xlog:all=error:stderr")
        if ready.exists():
            use = f"-XX:AOTCache={ready}" if ahead else f"-XX:SharedArchiveFile={ready}"
            return cls((*options, *quiet, use), None)
        folder.mkdir(parents=True, exist_ok=True)
        make = f"-XX:AOTCacheOutput={fresh}" if ahead else f"-XX:ArchiveClassesAtExit={fresh}"
        return cls((*options, *quiet, make), (fresh, ready))


def _launched(conf: object, java: Java, environ: Mapping[str, str], log: Path) -> JavaGateway:
    import pyspark
    from pyspark.java_gateway import launch_gateway

    log.parent.mkdir(parents=True, exist_ok=True)
    own = {
        **environ,
        "JAVA_HOME": java.home,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
    }
    with log.open("wb") as file, _environment(own):
        # a session of its own: what a terminal tells all its processes is for us to decide about
        how = {"stdout": file, "stderr": subprocess.STDOUT, "start_new_session": True}
        return launch_gateway(conf, how)  # type: ignore[no-untyped-call]


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """The process environment for the moment in which PySpark starts its child from it."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _close(gateway: JavaGateway, archive: tuple[Path, Path] | None) -> None:
    gateway.shutdown()
    _forget()
    process = gateway.proc
    if process is None:
        return
    process.stdin.close()
    try:
        process.wait(timeout=_DUMP_SECONDS if archive else 10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if archive is not None and archive[0].exists() and process.returncode == 0:
        archive[0].replace(archive[1])


def _end(gateway: JavaGateway, archive: tuple[Path, Path] | None) -> None:
    """At once, but for the moment in which Spark removes its temporary folders."""
    process = gateway.proc
    if archive is None:  # else it would write that first
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_DYING_SECONDS)
    process.kill()


def _forget() -> None:
    """Let a later session of this process start a JVM of its own."""
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None


def _joined(given: str | None, ours: tuple[str, ...], separator: str) -> str:
    return separator.join((*((given,) if given else ()), *ours))


def _tail(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    telling = [line for line in lines if "Exception" in line or "rror" in line]
    return (telling or lines or [""])[-1].strip()
