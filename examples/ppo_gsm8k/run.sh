#!/usr/bin/env bash
# PPO with a critic on GSM8K: a rule is the reward, generalised advantage estimation the advantage.
#   bash examples/ppo_gsm8k/run.sh [key=value ...]        any setting can be replaced or added
# POLICY, CRITIC: checkpoints. GSM8K: hub id, or a folder with gsm8k_train.jsonl and gsm8k_test.jsonl. DATA: the folder of the parquet files.
# GPUS: devices. SMALL=1 (the default where there is no GPU): a policy of 0.8M parameters on generated sums, a few minutes on 2 cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
small=${SMALL:-$(nvidia-smi -L >/dev/null 2>&1 && echo 0 || echo 1)}

if ((small)); then
    policy=${POLICY:-$models/tiny-arith}
    data=${DATA:-.data/arithmetic}
    [[ -n ${POLICY:-} || -f $policy/config.json ]] || "$python" examples/arithmetic/make_tiny_policy.py --out "$policy"
    [[ -f $data/train.parquet ]] || "$python" examples/arithmetic/make_data.py --out "$data"
else
    policy=${POLICY:-Qwen/Qwen2.5-0.5B-Instruct}
    data=${DATA:-data/gsm8k}
    [[ -f $data/train.parquet ]] || "$python" data_preprocess/gsm8k.py --source "${GSM8K:-openai/gsm8k}" --out "$data"
fi

settings=(
    reward.models=[gsm8k]
    data.train_files="$data/train.parquet"
    data.val_files="$data/test.parquet"
    data.train_batch_size=256
    data.max_prompt_length=512
    data.max_response_length=512
    actor_rollout_ref.model.path="$policy"
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.ppo_mini_batch_size=64
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4
    critic.optim.lr=1e-5
    critic.model.path="${CRITIC:-$policy}"
    critic.ppo_micro_batch_size_per_gpu=4
    algorithm.adv_estimator=gae
    algorithm.kl_ctrl.kl_coef=0.001
    trainer.logger=[console,jsonl,tensorboard]
    trainer.val_before_train=False
    trainer.n_gpus_per_node="${GPUS:-1}"
    trainer.nnodes=1
    trainer.save_freq=10
    trainer.test_freq=10
    trainer.total_epochs=15
    trainer.project_name=ppo_gsm8k
    trainer.experiment_name=full
)
if ((small)); then
    settings+=(
        data.train_batch_size=256
        data.max_prompt_length=32
        data.max_response_length=8
        actor_rollout_ref.model.enable_gradient_checkpointing=False
        actor_rollout_ref.rollout.dtype=float32
        actor_rollout_ref.actor.fsdp_config.param_dtype=null
        actor_rollout_ref.actor.optim.lr=2e-4
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=256
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=256
        critic.model.enable_gradient_checkpointing=False
        critic.fsdp_config.param_dtype=null
        critic.optim.lr=1e-3
        critic.ppo_micro_batch_size_per_gpu=256
        trainer.critic_warmup=2
        trainer.val_before_train=True
        trainer.save_freq=-1
        trainer.total_training_steps=30
        trainer.experiment_name=small
    )
fi

exec "$python" -m rmrl.main_ppo "${settings[@]}" "$@"
