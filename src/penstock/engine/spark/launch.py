"""How does the JVM of Spark start and end, with its secrets on no command line?"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from penstock.engine.spark.java import Java
from penstock.errors import SparkError
from penstock.secrets import secretive

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

KEPT_LOGS = 20
"""Of so many processes."""
DUMP_SECONDS = 90
DYING_SECONDS = 5.0
_LOOK_SECONDS = 0.02
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
"""What PySpark expects to be imported in the gateway."""
_NEEDED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "HOSTNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    }
)  # fmt: skip
_NEEDED_KINDS = (
    "LC_", "JAVA_", "JDK_", "SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "HDFS_", "YARN_", "HIVE_", "KRB5", "KUBERNETES_",
    "AWS_", "AZURE_", "GOOGLE_", "GCS_", "OCI_",
)  # fmt: skip


def needed_by_spark(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that Spark and its stores may need; passwords of anything else are not theirs."""
    return {
        name: value
        for name, value in environ.items()
        if name.upper() in _NEEDED or name.upper().startswith(_NEEDED_KINDS)
    }


def tellable(conf: Mapping[str, str], secrets: frozenset[str]) -> dict[str, str]:
    """The confs that the launch may know; the others are given to the context once there is one."""
    return {
        key: value for key, value in conf.items() if not secretive(key, value) and not any(s in value for s in secrets)
    }


def launch(conf: Mapping[str, str], own_options: str, java: Java, environ: Mapping[str, str], log: Path) -> JavaGateway:
    """A JVM that waits for a context; its arguments are two file names, and the files are gone when it answers.

    `own_options` are the Java options that may be seen; those in `conf` are the target's and may not.
    """
    home = spark_home()
    log.parent.mkdir(parents=True, exist_ok=True)
    _keep_newest(log.parent)
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as private:  # only this user may read it
        answer = Path(private, "answer")
        environment = {
            "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **needed_by_spark(environ),
            "JAVA_HOME": java.home,
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
        }
        conf_file = _written(Path(private), conf, own_options)
        command = [str(home / "bin" / "spark-submit"), "--load-spark-defaults", "--properties-file", str(conf_file)]
        with _private_log(log) as file:
            process = subprocess.Popen(
                [*command, "pyspark-shell"],
                env=environment,
                stdin=subprocess.PIPE,  # the JVM ends when this breaks
                stdout=file,
                stderr=subprocess.STDOUT,
                # a session of its own: what a terminal tells all its processes is for us to decide about
                start_new_session=True,
            )
        try:
            _import_meanwhile()
            return _connected(process, *_answered(process, answer))
        except BaseException:
            process.kill()
            process.communicate()
            raise


def spark_home() -> Path:
    """Where PySpark is installed; it takes half a second to import, so that waits until the JVM is on its way."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkError("pyspark is not installed", hint="pip install penstock brings it")
    return Path(spec.origin).parent


def properties(private: Path, conf: Mapping[str, str]) -> Path:
    """A file that tells spark-submit what its command line would show to everybody."""
    file = private / "spark.properties"
    file.write_text("".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items()), encoding="ascii")
    return file


def close(gateway: JavaGateway, archive: tuple[Path, Path] | None) -> None:
    gateway.shutdown()
    forget()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(timeout=DUMP_SECONDS if archive else 10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if archive is not None and archive[0].exists() and process.returncode == 0:
        archive[0].replace(archive[1])


def end(gateway: JavaGateway, archive: tuple[Path, Path] | None) -> None:
    """At once, but for the moment in which Spark removes its temporary folders."""
    process = gateway.proc
    if archive is None:  # else it would write that first
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(DYING_SECONDS)
    process.kill()
    process.communicate()  # nothing is left of it, neither a pipe nor a zombie


def forget() -> None:
    """Let a later session of this process start a JVM of its own."""
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None


def last_words(log: Path) -> str:
    """What Spark's log says about why it did not start."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    telling = [line for line in lines if "Exception" in line or "rror" in line]
    return (telling or lines or [""])[-1].strip()


def _written(private: Path, conf: Mapping[str, str], own_options: str) -> Path:
    """The confs as a properties file; the target's Java options as a file of arguments, which Java reads itself."""
    confs = dict(conf)
    options = shlex.split(confs.get(JAVA_OPTIONS, ""))
    confs[JAVA_OPTIONS] = own_options
    if options:
        arguments = private / "java.options"
        arguments.write_text("".join(f"{_argument(option)}\n" for option in options))
        confs[JAVA_OPTIONS] = f"@{arguments} {own_options}"
    return properties(private, confs)


def _argument(option: str) -> str:
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    """A key or value as java.util.Properties reads it back."""
    safe = "-_./,;@"
    return "".join(c if c.isascii() and (c.isalnum() or c in safe) else f"\\u{ord(c):04x}" for c in _utf16(text))


def _utf16(text: str) -> str:
    """One character per UTF-16 unit, for that is what the escapes of a properties file count in."""
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(int.from_bytes(raw[i : i + 2], "big")) for i in range(0, len(raw), 2))


def _keep_newest(folder: Path) -> None:
    """Remove the logs of all but the last processes; one that still writes to its own goes on doing so."""
    with suppress(OSError):
        logs = sorted(folder.glob("spark-*.log"), key=lambda log: log.stat().st_mtime, reverse=True)
        for log in logs[KEPT_LOGS:]:
            log.unlink(missing_ok=True)


def _private_log(log: Path) -> BinaryIO:
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _import_meanwhile() -> None:
    """What an attempt imports anyway, while the JVM starts."""
    import pyarrow.parquet  # noqa: F401
    import pyspark.sql
    import pyspark.sql.functions
    import pyspark.sql.pandas.conversion  # noqa: F401


def _answered(process: subprocess.Popen[bytes], answer: Path) -> tuple[int, str]:
    """Port and password of the gateway, which it writes down when it listens."""
    while not answer.exists():
        if process.poll() is not None:
            raise SparkError("its process ended before it answered")
        time.sleep(_LOOK_SECONDS)
    raw = answer.read_bytes()
    port, length = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")
    return port, raw[8 : 8 + length].decode()


def _connected(process: subprocess.Popen[bytes], port: int, password: str) -> JavaGateway:
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import java_import

    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=password, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    gateway.proc = process
    for name in _IMPORTS:
        java_import(gateway.jvm, name)
    return gateway
