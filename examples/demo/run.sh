#!/usr/bin/env bash
# The main job, small: SmolLM2-135M-Instruct learns arithmetic from a rule and two reward models that share the machine with it.
#   bash examples/demo/run.sh [key=value ...]        any setting can be replaced or added
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
data=${DATA:-.data/demo}

[[ -f $data/train.parquet ]] || "$python" data_preprocess/arithmetic.py --out "$data" --train 512 --test 48 --seed 0

run=runs/demo/smollm2
for argument in "$@"; do
    case $argument in
        trainer.default_local_dir=*) run=${argument#*=} ;;
        trainer.experiment_name=*) run=runs/demo/${argument#*=} ;;
    esac
done

"$python" -m rmrl.main_ppo \
    reward.models=[gsm8k,answer_judge,relevance] \
    reward.weights=[0.2,0.3,0.5] \
    reward.max_missing=0.4 \
    reward.specs.answer_judge.path="$models/smollm2" \
    reward.specs.answer_judge.engine.dtype=float32 \
    reward.specs.answer_judge.engine.kwargs.enable_prefix_caching=true \
    reward.specs.answer_judge.engine.kwargs.block_size=32 \
    reward.specs.relevance.path="$models/ms-marco-minilm" \
    data.train_files="$data/train.parquet" \
    data.val_files="$data/test.parquet" \
    data.train_batch_size=3 \
    data.max_prompt_length=96 \
    data.max_response_length=24 \
    actor_rollout_ref.model.path="$models/smollm2" \
    actor_rollout_ref.model.enable_gradient_checkpointing=False \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.dtype=float32 \
    +actor_rollout_ref.rollout.engine_kwargs.vllm.block_size=32 \
    actor_rollout_ref.actor.fsdp_config.param_dtype=null \
    actor_rollout_ref.actor.ppo_mini_batch_size=3 \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048 \
    actor_rollout_ref.actor.optim.lr=2e-5 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    algorithm.adv_estimator=grpo \
    trainer.n_gpus_per_node=1 \
    trainer.total_training_steps=12 \
    trainer.val_before_train=False \
    trainer.project_name=demo \
    trainer.experiment_name=smollm2 \
    "$@"

exec "$python" -m rmrl.main_report "$run"
