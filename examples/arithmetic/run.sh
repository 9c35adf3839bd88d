#!/usr/bin/env bash
# A run that learns: a 0.8M-parameter policy that is off by one more often than not, trained with GRPO on a rule.
#   bash examples/arithmetic/run.sh [key=value ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
data=${DATA:-.data/arithmetic}

[[ -f $models/tiny-arith/config.json ]] || "$python" examples/arithmetic/make_tiny_policy.py --out "$models/tiny-arith"
[[ -f $data/train.parquet ]] || "$python" examples/arithmetic/make_data.py --out "$data"

exec "$python" -m rmrl.main_ppo \
    reward.models=[arithmetic] \
    data.train_files="$data/train.parquet" \
    data.val_files="$data/test.parquet" \
    data.train_batch_size=64 \
    data.max_prompt_length=32 \
    data.max_response_length=8 \
    actor_rollout_ref.model.path="$models/tiny-arith" \
    actor_rollout_ref.model.enable_gradient_checkpointing=False \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.dtype=float32 \
    actor_rollout_ref.actor.fsdp_config.param_dtype=null \
    actor_rollout_ref.actor.ppo_mini_batch_size=16 \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
    actor_rollout_ref.actor.optim.lr=2e-4 \
    algorithm.adv_estimator=grpo \
    trainer.n_gpus_per_node=1 \
    trainer.total_training_steps=60 \
    trainer.test_freq=5 \
    trainer.seed=1 \
    trainer.project_name=arithmetic \
    trainer.experiment_name=grpo \
    "$@"
