#!/usr/bin/env bash
# The slow tests, two files at a time, those that take longest first.
#
#   scripts/test_slow.sh MARKERS [ARGUMENT ...]     e.g. scripts/test_slow.sh "slow and not nightly"
#
# Those of the folders in $TESTS, all without it.
# Those marked `alone` look at the processes and the shared memory of the whole machine. Where two
# namespaces may be had, each worker of pytest is a machine of its own to them; elsewhere they run one
# at a time after the others. JUnit files go to $REPORTS, build if there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

reports=${REPORTS:-build}
markers=$1
shift
python=.venv/bin/python
isolated=scripts/isolated_python.sh
read -ra tests <<<"${TESTS:-tests/slow}"
run=("$python" -m pytest "${tests[@]}" --dist loadfile --no-loadscope-reorder -o junit_family=xunit1 "$@")

if "$isolated" -c pass 2>/dev/null; then
    exec "${run[@]}" -m "$markers" --tx "2*popen//python=$isolated" --junitxml "$reports/slow.xml"
fi
echo "[tests] namespaces are refused here: tests that watch the whole machine run one at a time"
status=0
"${run[@]}" -m "($markers) and not alone" --numprocesses 2 --junitxml "$reports/slow.xml" || status=$?
"${run[@]}" -m "($markers) and alone" --junitxml "$reports/alone.xml" || status=$?
exit "$status"
