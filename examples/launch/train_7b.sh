#!/usr/bin/env bash
# A policy of 7B with a rule and a judge of 7B, as docs/to-7b.md explains it line by line. The other files of this folder start it on a
# cluster.
#   bash examples/launch/train_7b.sh trainer.nnodes=2 [key=value ...]        any setting can be replaced or added
# SHARED: a folder that every node sees, with the data and the runs. GPUS: devices of a node. PYTHON_BIN: the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
shared=${SHARED:-$PWD}
python=${PYTHON_BIN:-python}
model=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
data=${DATA:-$shared/data/math}

[[ -f $data/train.parquet ]] ||
    "$python" data_preprocess/hendrycks_math.py --source "${MATH:-DigitalLearningGmbH/MATH-lighteval}" --out "$data"

exec "$python" -m rmrl.main_ppo \
    "reward.models=[math_verify,clear]" "reward.weights=[1,0.3]" \
    "reward.specs.clear={kind: rubric, path: $model, criteria: [Every step is explained.], overlong: truncate_middle}" \
    reward.specs.clear.engine.max_model_len=8192 \
    data.train_files="$data/train.parquet" data.val_files="$data/test.parquet" \
    data.train_batch_size=128 data.max_prompt_length=1024 data.max_response_length=3072 \
    data.filter_overlong_prompts=True \
    actor_rollout_ref.model.path="$model" \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.optim.lr=1e-6 algorithm.adv_estimator=grpo \
    trainer.n_gpus_per_node="${GPUS:-8}" trainer.total_training_steps=20 trainer.test_freq=10 \
    trainer.default_local_dir="$shared/runs/first_7b" trainer.experiment_name=first_7b \
    "$@"
