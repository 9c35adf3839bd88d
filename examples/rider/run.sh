#!/usr/bin/env bash
# The customer-service task: a policy replies to couriers in JSON; a rule on the form opens the gate to two judges and a similarity.
#   bash examples/rider/run.sh [key=value ...]        any setting can be replaced or added
# POLICY, JUDGE and EMBEDDER name other models, DATA another folder of train.parquet and test.parquet. REWARD_DTYPE: of the judges and
# the embedder; in float32 the samples score the same in any batch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
data=${DATA:-.data/rider}
policy=${POLICY:-$models/tiny-rider}
judge=${JUDGE:-$models/smollm2}
embedder=${EMBEDDER:-$models/all-minilm}

[[ -n ${POLICY:-} || -f $policy/config.json ]] || "$python" examples/rider/make_policy.py --out "$policy"
[[ -f $data/train.parquet ]] || "$python" data_preprocess/rider.py --source examples/rider/dialogues.jsonl --out "$data"

exec "$python" -m rmrl.main_ppo \
    reward.models=[rider_format,rider_reward,consistency_reward,rider_similarity] \
    reward.weights=[1.0,0.3,0.5,0.2] \
    reward.combine=gate \
    reward.gates=[rider_format] \
    reward.specs.rider_reward.path="$judge" \
    reward.specs.consistency_reward.path="$judge" \
    reward.specs.rider_similarity.path="$embedder" \
    reward.engine.dtype="${REWARD_DTYPE:-float32}" \
    data.train_files="$data/train.parquet" \
    data.val_files="$data/test.parquet" \
    data.train_batch_size=4 \
    data.max_prompt_length=512 \
    data.max_response_length=256 \
    data.filter_overlong_prompts=True \
    actor_rollout_ref.model.path="$policy" \
    actor_rollout_ref.model.enable_gradient_checkpointing=False \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.dtype=float32 \
    actor_rollout_ref.actor.fsdp_config.param_dtype=null \
    actor_rollout_ref.actor.ppo_mini_batch_size=4 \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192 \
    actor_rollout_ref.actor.optim.lr=1e-4 \
    algorithm.adv_estimator=grpo \
    trainer.n_gpus_per_node=1 \
    trainer.total_training_steps=20 \
    trainer.val_before_train=False \
    trainer.project_name=rider \
    trainer.experiment_name=gate \
    "$@"
