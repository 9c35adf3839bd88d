#!/usr/bin/env bash
# The training line as a job of a Ray cluster of two nodes. The job runs on the head and outlives your terminal.
#   bash examples/launch/ray_job.sh head                           on the first node
#   bash examples/launch/ray_job.sh worker <address of the head>   on each other node, e.g. worker 10.0.0.1:6379
#   bash examples/launch/ray_job.sh submit [key=value ...]         once, on any of them
# NNODES: nodes. RAY_JOBS: where the head's job server listens. The checkout and SHARED lie under the same paths on every node.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [[ -s ~/.ray/auth_token ]]; then export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}; fi

what=${1:-}
shift || true
case $what in
head)
    # `ray job stop` kills after so many seconds: a step and its checkpoint have to fit.
    export RAY_JOB_STOP_WAIT_TIME_S=${RAY_JOB_STOP_WAIT_TIME_S:-1800}
    ray start --head --port=6379 --dashboard-host=127.0.0.1
    ;;
worker) ray start --address="${1:?give the address of the head, e.g. 10.0.0.1:6379}" ;;
submit)
    exec ray job submit --address="${RAY_JOBS:-http://127.0.0.1:8265}" \
        --runtime-env-json="{\"env_vars\": {\"PYTHONPATH\": \"$root\", \"SHARED\": \"${SHARED:-$root}\"}}" \
        -- bash "$root/examples/launch/train_7b.sh" trainer.nnodes="${NNODES:-2}" "$@"
    ;;
*)
    echo "usage: bash examples/launch/ray_job.sh head | worker <address> | submit [key=value ...]" >&2
    exit 2
    ;;
esac
