#!/usr/bin/env bash
#SBATCH --job-name=rmrl --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=64 --exclusive
#SBATCH --time=24:00:00 --signal=B:TERM@1800 --requeue
# Ray on every node of a SLURM job, and the training line on the first one.
#   sbatch examples/launch/slurm.sh [key=value ...]        submit from the checkout, which every node sees
# SLURM's TERM comes 1800 s before the end: long enough for a step and a checkpoint. The job is then queued again, and the same command goes
# on from the checkpoint.
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}" || exit 2
# shellcheck source=/dev/null
[[ -f .venv/bin/activate ]] && source .venv/bin/activate
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address | awk '{print $1}')
others=$((SLURM_NNODES - 1))
# Ray asks every node for the token once there is one, and only looks for it when told to.
if [[ -s ~/.ray/auth_token ]]; then export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}; fi

srun --overlap --nodes=1 --ntasks=1 -w "${nodes[0]}" ray start --head --node-ip-address="$head" --port=6379 --block &
for ((tries = 0; tries < 60; tries++)); do
    ray health-check --address "$head:6379" 2>/dev/null && break
    sleep 2
done
if ((others)); then
    srun --overlap --nodes="$others" --ntasks="$others" -x "${nodes[0]}" ray start --address="$head:6379" --block &
fi

RAY_ADDRESS=$head:6379 bash examples/launch/train_7b.sh trainer.nnodes="$SLURM_NNODES" "$@" &
job=$!
trap 'kill -TERM $job' TERM
code=0
while kill -0 $job 2>/dev/null; do
    wait $job
    code=$?
done
if [[ $code == 130 ]]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
