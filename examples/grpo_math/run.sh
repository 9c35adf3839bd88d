#!/usr/bin/env bash
# GRPO on MATH: the answer stands in \boxed{}, math-verify decides whether it equals the reference.
#   bash examples/grpo_math/run.sh [key=value ...]        any setting can be replaced or added
# POLICY: a checkpoint. MATH: hub id, jsonl or parquet file, or folder (see data_preprocess/hendrycks_math.py). MATH_TEST: the same for the
# test rows. DATA: the folder of the parquet files. GPUS: devices.
# SMALL=1 (the default where there is no GPU): SmolLM2-135M, a few steps; without MATH on generated sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
small=${SMALL:-$(nvidia-smi -L >/dev/null 2>&1 && echo 0 || echo 1)}

if ((small)); then
    policy=${POLICY:-$models/smollm2}
    data=${DATA:-.data/grpo_math${MATH:+_given}}
    [[ -n ${POLICY:-} || -f $policy/config.json ]] || "$python" examples/assets/fetch_models.py --out "$models" --only smollm2
else
    policy=${POLICY:-Qwen/Qwen2.5-1.5B-Instruct}
    data=${DATA:-data/math}
    MATH=${MATH:-DigitalLearningGmbH/MATH-lighteval}
fi
if [[ ! -f $data/train.parquet ]]; then
    if [[ -z ${MATH:-} ]]; then
        "$python" data_preprocess/arithmetic.py --out "$data" --train 512 --test 48 --style boxed
    elif [[ -f $MATH && -z ${MATH_TEST:-} ]]; then
        "$python" data_preprocess/hendrycks_math.py --source "$MATH" --test-share 0.2 --out "$data"
    else
        "$python" data_preprocess/hendrycks_math.py --source "$MATH" ${MATH_TEST:+--test-source "$MATH_TEST"} --out "$data"
    fi
fi

settings=(
    reward.models=[math_verify]
    data.train_files="$data/train.parquet"
    data.val_files="$data/test.parquet"
    data.train_batch_size=128
    data.max_prompt_length=1024
    data.max_response_length=2048
    data.filter_overlong_prompts=True
    actor_rollout_ref.model.path="$policy"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6
    actor_rollout_ref.actor.ppo_mini_batch_size=64
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.clip_ratio_high=0.28
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.001
    algorithm.adv_estimator=grpo
    trainer.n_gpus_per_node="${GPUS:-1}"
    trainer.total_epochs=5
    trainer.test_freq=10
    trainer.save_freq=20
    trainer.project_name=grpo_math
    trainer.experiment_name=full
)
if ((small)); then
    settings+=(
        data.train_batch_size=4
        data.max_prompt_length=192
        data.max_response_length=64
        actor_rollout_ref.model.enable_gradient_checkpointing=False
        actor_rollout_ref.rollout.n=4
        actor_rollout_ref.actor.ppo_mini_batch_size=4
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048
        actor_rollout_ref.actor.optim.lr=1e-5
        trainer.total_training_steps=4
        trainer.val_before_train=False
        trainer.test_freq=-1
        trainer.save_freq=-1
        trainer.experiment_name=small
    )
fi

exec "$python" -m rmrl.main_ppo "${settings[@]}" "$@"
