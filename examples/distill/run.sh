#!/usr/bin/env bash
# On-policy distillation: a policy that is off by one more often than not approaches a teacher that calculates right; no rule has a weight.
#   bash examples/distill/run.sh [key=value ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
data=${DATA:-.data/arithmetic}

[[ -f $models/tiny-arith/config.json ]] || "$python" examples/arithmetic/make_tiny_policy.py --out "$models/tiny-arith"
[[ -f $models/tiny-arith-teacher/config.json ]] || "$python" examples/arithmetic/make_tiny_policy.py --mistake 0 --out "$models/tiny-arith-teacher"
[[ -f $data/train.parquet ]] || "$python" examples/arithmetic/make_data.py --out "$data"

exec "$python" -m rmrl.main_ppo +recipe=distill \
    reward.models=[teacher,arithmetic] \
    reward.weights=[1,0] \
    reward.specs.teacher.kind=teacher \
    reward.specs.teacher.path="$models/tiny-arith-teacher" \
    reward.engine.name=hf \
    reward.engine.dtype=float32 \
    reward.engine.max_model_len=64 \
    data.train_files="$data/train.parquet" \
    data.val_files="$data/test.parquet" \
    data.train_batch_size=64 \
    data.max_prompt_length=32 \
    data.max_response_length=8 \
    actor_rollout_ref.model.path="$models/tiny-arith" \
    actor_rollout_ref.model.enable_gradient_checkpointing=False \
    actor_rollout_ref.rollout.dtype=float32 \
    actor_rollout_ref.actor.fsdp_config.param_dtype=null \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
    actor_rollout_ref.actor.optim.lr=5e-4 \
    trainer.n_gpus_per_node=1 \
    trainer.total_training_steps=60 \
    trainer.test_freq=5 \
    trainer.seed=1 \
    trainer.project_name=distill \
    trainer.experiment_name=arithmetic \
    "$@"
