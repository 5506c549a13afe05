#!/bin/sh
# Runs the tests that need a JVM and those that do not side by side: either half alone leaves a core idle much of the time.
set -u
python="$1"
quiet_log="$(mktemp)"
"$python" -m pytest -q tests/integration tests/crash > "$quiet_log" 2>&1 &
quiet=$!
trap 'kill "$quiet" 2> /dev/null; rm -f "$quiet_log"; exit 130' INT TERM
"$python" -m pytest -q tests/spark tests/acceptance
jvm_code=$?
wait "$quiet"
quiet_code=$?
cat "$quiet_log"
rm -f "$quiet_log"
[ "$jvm_code" -eq 0 ] && [ "$quiet_code" -eq 0 ]
