#!/usr/bin/env bash
# Python in namespaces of its own: it sees the processes that it started and no others, and has /dev/shm
# and Ray's folder for itself, so that two tests that look at what is left there may run at the same time.
#
#   scripts/isolated_python.sh ARGUMENT ...     the arguments of python
#
# Fails at once where the system refuses such namespaces.
set -euo pipefail
python=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin/python

user=()
[[ $(id -u) == 0 ]] || user=(--user --map-root-user)
# The shell stays as the first process of the namespace: it reaps what others leave behind.
# shellcheck disable=SC2016
exec unshare "${user[@]}" --mount --pid --fork --kill-child --mount-proc bash -c '
    set -e
    mount -t tmpfs tmpfs /dev/shm
    mkdir -p /tmp/ray
    mount -t tmpfs tmpfs /tmp/ray
    set +e
    "$@"
    exit $?' bash "$python" "$@"
