"""Where are the Delta jars that go with this Spark?"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.engine.spark.launch import needed_by_spark, properties, spark_home
from penstock.errors import SparkError

DELTA = "4.4.0"
JARS = {
    f"delta-spark_4.2_2.13-{DELTA}.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    f"delta-storage-{DELTA}.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    f"delta-kernel-api-{DELTA}.jar": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    f"delta-kernel-defaults-{DELTA}.jar": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
}
OVERRIDE = "PENSTOCK_JARS"
_RESOLVER_CONFS = ("spark.jars.ivySettings", "spark.jars.repositories")
_RESOLVE_SECONDS = 600


def delta_jars(
    environ: Mapping[str, str], cache: Path, java_home: str, conf: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Paths of the four jars; the first call resolves them into `cache`, later ones need no network."""
    override = environ.get(OVERRIDE)
    if override:
        return _as_given(Path(override))
    folder = cache / "jars"
    wanted = tuple(str(folder / name) for name in JARS)
    if _complete(folder):
        return wanted
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        if not _complete(folder):  # another process may have done it while we waited
            _resolve(folder, environ, java_home, conf or {})
    return wanted


def jars_ready(environ: Mapping[str, str], cache: Path) -> bool:
    """Whether a session can start without fetching anything."""
    return OVERRIDE in environ or _complete(cache / "jars")


def _as_given(folder: Path) -> tuple[str, ...]:
    paths = tuple(sorted(str(path) for path in folder.glob("*.jar")))
    if not any("delta-spark" in Path(path).name for path in paths):
        raise SparkError(
            f"{OVERRIDE}={folder} holds no delta-spark jar",
            hint=f"put {', '.join(JARS)} there, or unset {OVERRIDE} to have them resolved",
        )
    return paths


def _complete(folder: Path) -> bool:
    return all(_sha256(folder / name) == digest for name, digest in JARS.items())


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _resolve(folder: Path, environ: Mapping[str, str], java_home: str, conf: Mapping[str, str]) -> None:
    """Let Spark's own resolver fetch the jars, so that a company's mirror settings hold for us too."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".resolve-") as temporary:
        said = _run_resolver(Path(temporary), environ, java_home, conf)
        resolved = {path.name.removeprefix("io.delta_"): path for path in Path(temporary).glob("jars/*.jar")}
        for name, digest in JARS.items():
            jar = resolved.get(name)
            if jar is None:
                raise SparkError(
                    f"the Delta jar {name} could not be resolved: {_reason(said)}",
                    hint=f"check the network, name a mirror in spark.conf (spark.jars.repositories or "
                    f"spark.jars.ivySettings), or put the jars in a folder and set {OVERRIDE}",
                )
            if _sha256(jar) != digest:
                raise SparkError(f"the Delta jar {name} is not the one we know: its sha256 differs")
            fresh = folder / f".{name}.{os.getpid()}"
            shutil.copyfile(jar, fresh)
            fresh.replace(folder / name)


def _run_resolver(temporary: Path, environ: Mapping[str, str], java_home: str, conf: Mapping[str, str]) -> str:
    home = spark_home()
    nothing = temporary / "nothing.py"
    nothing.write_text("")
    packages = ",".join(f"io.delta:{name.removesuffix(f'-{DELTA}.jar')}:{DELTA}" for name in JARS)
    command = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--packages", packages]
    # what Delta depends on is in Spark already, some of it newer: leave it out
    command += ["--exclude-packages", "org.*:*,com.*:*,io.unitycatalog:*"]
    # a mirror's address may hold a password: it is not for the command line
    resolver_confs = {key: conf[key] for key in _RESOLVER_CONFS if key in conf}
    conf_file = properties(temporary, {**resolver_confs, "spark.jars.ivy": str(temporary), "spark.ui.enabled": "false"})
    command += ["--load-spark-defaults", "--properties-file", str(conf_file)]
    own = {"JAVA_HOME": java_home, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    try:
        done = subprocess.run(
            [*command, str(nothing)],
            env={**needed_by_spark(environ), **own},
            capture_output=True,
            text=True,
            timeout=_RESOLVE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_RESOLVE_SECONDS} s"
    return done.stdout + done.stderr


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "unresolved dependency" in line or "not found" in line.lower()]
    return (telling or lines or ["the resolver said nothing"])[-1]
