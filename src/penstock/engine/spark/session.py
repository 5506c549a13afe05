"""How is Spark started, shared between attempts and stopped?"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.spark import jars, launch
from penstock.engine.spark.java import Java, find
from penstock.errors import SparkError
from penstock.secrets import secret_values

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_OWN_OPTIONS = ("-Duser.timezone=UTC", "-XX:-DontCompileHugeMethods")
_LAG_MILLISECONDS = 2000
"""How long the count of jobs is waited for; it is shown to people and decides nothing."""
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
    """Options of the object store as delta-rs names them; the common ones are given to Spark too."""
    quick: bool = False
    """Start sooner and peak lower: for tests and short local runs."""

    @property
    def secrets(self) -> frozenset[str]:
        """Values that no argument, log or error may show."""
        return secret_values(self.storage) | secret_values(self.conf)

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
        """How many Spark jobs ran in this attempt so far; cosmetic, so nothing waits long and nothing fails for it."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from penstock.engine.spark.failures import is_spark_error

        context = self.spark.sparkContext
        assert context._jsc is not None  # noqa: S101
        try:
            with suppress(Py4JJavaError, PySparkException):  # jobs are counted by a listener, which may lag behind
                context._jsc.sc().listenerBus().waitUntilEmpty(_LAG_MILLISECONDS)
            return len(context.statusTracker().getJobIdsForGroup(self.group))
        except Exception as error:
            if not is_spark_error(error):
                raise
            return 0  # the JVM is gone, which others say


class Session:
    """The one Spark session of a process; nothing is started before it is first used."""

    def __init__(self, settings: SparkSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._gateway: JavaGateway | None = None
        self._archive: tuple[Path, Path] | None = None
        self._beginning: threading.Thread | None = None
        self.on_death: Callable[[], None] | None = None
        """Set when the JVM ends without having been stopped."""

    @property
    def started(self) -> bool:
        return self._spark is not None

    @property
    def keeps_classes(self) -> bool:
        """Whether stopping takes a while, because the JVM then writes the archive that makes later starts quick."""
        return self._archive is not None

    @property
    def alive(self) -> bool:
        """False once the JVM has ended without having been stopped."""
        return self._gateway is None or self._gateway.proc is None or self._gateway.proc.poll() is None

    def begin(self) -> None:
        """Start Spark in the background, because work is due; the first that needs it waits until it is up."""
        if self._spark is None and self._beginning is None:
            self._beginning = threading.Thread(target=self._begin, name="penstock-spark", daemon=True)
            self._beginning.start()

    def spark(self) -> SparkSession:
        """The shared session, started at the first call."""
        with self._lock:
            if self._spark is None:
                self._spark = self._start()
            return self._spark

    @contextmanager
    def attempt(self, group: str, about: str = "", timeout_seconds: float | None = None) -> Iterator[Attempt]:
        """A session of its own for one attempt; `cancel(group)` from another thread ends its jobs."""
        attempt = self._opened(group, about)
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

    def kill(self) -> None:
        """End the JVM although somebody uses it: what it computes in the driver heeds nothing else."""
        gateway = self._gateway
        if gateway is not None:
            gateway.proc.kill()

    def stop(self, *, quick: bool = False) -> None:
        """`quick`: end the JVM now, whatever it is doing and whatever it would keep for later starts."""
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.join()
        with self._lock:
            spark, self._spark = self._spark, None
            gateway, self._gateway = self._gateway, None
            if gateway is not None and gateway.proc is not None and (quick or gateway.proc.poll() is not None):
                launch.end(gateway, self._archive)
                launch.forget()
                return
            if spark is not None:
                spark.stop()
            if gateway is not None:
                launch.close(gateway, self._archive)

    def _begin(self) -> None:
        with suppress(Exception):  # the first attempt that needs it tries again and raises the error
            self.spark()

    def _opened(self, group: str, about: str) -> Attempt:
        from penstock.engine.spark.failures import is_spark_error

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
        from penstock.engine.spark.failures import is_spark_error

        try:
            yield
        except Exception as error:
            if not is_spark_error(error):
                raise
            gateway = self._gateway
            if gateway is not None and gateway.proc is not None:
                with suppress(subprocess.TimeoutExpired):
                    gateway.proc.wait(launch.DYING_SECONDS)

    def _watch(self, gateway: JavaGateway) -> None:
        gateway.proc.wait()
        if self._gateway is gateway and self.on_death is not None:
            self.on_death()

    def _expire(self, attempt: Attempt) -> None:
        attempt.timed_out = True
        self.cancel(attempt.group)

    def _start(self) -> SparkSession:
        settings = self.settings
        settings.cache.mkdir(parents=True, exist_ok=True)
        java = find(settings.environ, settings.cache)
        paths = jars.delta_jars(settings.environ, settings.cache, java.home, settings.conf)
        archive = _Archive.of(java, paths, settings)
        conf = configuration(settings, paths, archive.options)
        # the launch hears no secret, and the target's own Java options by a file that only we can read
        launch_conf = launch.tellable(conf, settings.secrets) | {
            launch.JAVA_OPTIONS: settings.conf.get(launch.JAVA_OPTIONS, "")
        }
        log = settings.cache / "logs" / f"spark-{os.getpid()}.log"
        try:
            own = " ".join((*_OWN_OPTIONS, *archive.options))
            self._gateway = launch.launch(launch_conf, own, java, settings.environ, log)
            from pyspark import SparkConf, SparkContext
            from pyspark.sql import SparkSession

            context = SparkContext(gateway=self._gateway, conf=SparkConf(loadDefaults=False).setAll([*conf.items()]))
        except Exception as error:
            gateway, self._gateway = self._gateway, None
            if gateway is not None and gateway.proc is not None:
                gateway.proc.kill()
                launch.forget()
            raise SparkError(f"Spark did not start: {launch.last_words(log) or error}", hint=f"see {log}") from error
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
        launch.JAVA_OPTIONS: _joined(settings.conf.get(launch.JAVA_OPTIONS), (*_OWN_OPTIONS, *java_options), " "),
        "spark.executor.extraJavaOptions": _joined(
            settings.conf.get("spark.executor.extraJavaOptions"), _OWN_OPTIONS, " "
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
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC") if settings.quick else ()
        # the options are split at spaces, and no quoting survives all the programs they pass through
        if not settings.local or "spark.driver.extraClassPath" in settings.conf or " " in str(settings.cache):
            return cls(options, None)
        release = Path(java.home, "bin", "java").resolve().stat()
        parts = (
            java.home,
            java.major,
            release.st_mtime_ns,
            release.st_size,
            str(launch.spark_home()),
            version("pyspark"),
        )
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


def _joined(configured: str | None, ours: tuple[str, ...], separator: str) -> str:
    return separator.join((*((configured,) if configured else ()), *ours))
