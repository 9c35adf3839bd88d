#!/usr/bin/env bash
# LIMR: PPO on 1389 chosen problems of MATH, with the settings of its authors' script (8 responses a prompt, temperature 1.2, lambda 0.95).
#   bash examples/limr/run.sh [key=value ...]        any setting can be replaced or added
# POLICY: a checkpoint. LIMR: hub id, jsonl or parquet file. MATH500: where the test rows come from, the same choices. DATA: the folder of
# the parquet files. GPUS: devices.
# SMALL=1 (the default where there is no GPU): SmolLM2-135M and a critic of its size, a few steps; without LIMR on generated sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
small=${SMALL:-$(nvidia-smi -L >/dev/null 2>&1 && echo 0 || echo 1)}

if ((small)); then
    policy=${POLICY:-$models/smollm2}
    data=${DATA:-.data/limr${LIMR:+_given}}
    [[ -n ${POLICY:-} || -f $policy/config.json ]] || "$python" examples/assets/fetch_models.py --out "$models" --only smollm2
else
    policy=${POLICY:-Qwen/Qwen2.5-Math-7B}
    data=${DATA:-data/limr}
    LIMR=${LIMR:-GAIR/LIMR}
    MATH500=${MATH500:-HuggingFaceH4/MATH-500}
fi
if [[ ! -f $data/train.parquet ]]; then
    if [[ -z ${LIMR:-} ]]; then
        "$python" data_preprocess/arithmetic.py --out "$data" --train 512 --test 48 --style boxed
    elif [[ -f $LIMR && -z ${MATH500:-} ]]; then
        "$python" data_preprocess/limr.py --source "$LIMR" --test-share 0.2 --out "$data"
    else
        "$python" data_preprocess/limr.py --source "$LIMR" ${MATH500:+--test-source "$MATH500"} --out "$data"
    fi
fi

settings=(
    reward.models=[math_verify]
    data.train_files="$data/train.parquet"
    data.val_files="$data/test.parquet"
    data.train_batch_size=1024
    data.max_prompt_length=1024
    data.max_response_length=3072
    data.filter_overlong_prompts=True
    actor_rollout_ref.model.path="$policy"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.temperature=1.2
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6
    # The authors' batch of 256 responses is 32 prompts.
    actor_rollout_ref.actor.ppo_mini_batch_size=32
    actor_rollout_ref.actor.optim.lr=5e-7
    actor_rollout_ref.actor.optim.lr_warmup_steps=10
    actor_rollout_ref.actor.fsdp_config.param_offload=True
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
    critic.model.path="$policy"
    critic.optim.lr=9e-6
    critic.optim.lr_warmup_steps=10
    critic.cliprange_value=0.2
    critic.fsdp_config.param_offload=True
    critic.fsdp_config.optimizer_offload=True
    algorithm.adv_estimator=gae
    algorithm.lam=0.95
    algorithm.use_kl_in_reward=True
    algorithm.kl_ctrl.kl_coef=0.01
    trainer.n_gpus_per_node="${GPUS:-8}"
    trainer.total_training_steps=200
    trainer.test_freq=5
    trainer.save_freq=20
    trainer.project_name=limr
    trainer.experiment_name=full
)
if ((small)); then
    settings+=(
        data.train_batch_size=2
        data.max_prompt_length=192
        data.max_response_length=64
        actor_rollout_ref.model.enable_gradient_checkpointing=False
        actor_rollout_ref.rollout.n=4
        actor_rollout_ref.actor.ppo_mini_batch_size=2
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048
        actor_rollout_ref.actor.optim.lr=1e-5
        actor_rollout_ref.actor.optim.lr_warmup_steps=-1
        actor_rollout_ref.actor.fsdp_config.param_offload=False
        actor_rollout_ref.actor.fsdp_config.optimizer_offload=False
        critic.model.enable_gradient_checkpointing=False
        critic.ppo_max_token_len_per_gpu=2048
        critic.optim.lr_warmup_steps=-1
        critic.fsdp_config.param_offload=False
        critic.fsdp_config.optimizer_offload=False
        trainer.n_gpus_per_node=1
        trainer.total_training_steps=3
        trainer.val_before_train=False
        trainer.test_freq=-1
        trainer.save_freq=-1
        trainer.experiment_name=small
    )
fi

exec "$python" -m rmrl.main_ppo "${settings[@]}" "$@"
