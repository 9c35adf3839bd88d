#!/usr/bin/env bash
# Supervised fine-tuning with TRL's SFTTrainer, then GRPO from what it made.
#   bash examples/sft_then_grpo/run.sh [key=value ...]        settings of the GRPO run
# BASE: the checkpoint that SFT starts from. SFT: the folder that it writes (made once; delete it to make it again). SFT_OPTIONS: options of
# sft.py, e.g. SFT_OPTIONS="--epochs 2". GSM8K: hub id or folder. DATA: the folder of the parquet files. GPUS: devices.
# SMALL=1 (the default where there is no GPU): SmolLM2-135M on generated sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
small=${SMALL:-$(nvidia-smi -L >/dev/null 2>&1 && echo 0 || echo 1)}

if ((small)); then
    base=${BASE:-$models/smollm2}
    sft=${SFT:-$models/smollm2-sft}
    data=${DATA:-.data/sft_then_grpo}
    options=${SFT_OPTIONS:---rows 256 --batch 16 --lr 1e-4}
    [[ -n ${BASE:-} || -f $base/config.json ]] || "$python" examples/assets/fetch_models.py --out "$models" --only smollm2
    [[ -f $data/train.parquet ]] || "$python" data_preprocess/arithmetic.py --out "$data" --train 768 --test 48
else
    base=${BASE:-Qwen/Qwen2.5-0.5B}
    sft=${SFT:-runs/sft_then_grpo/sft}
    data=${DATA:-data/gsm8k}
    options=${SFT_OPTIONS:---epochs 1 --batch 32 --lr 1e-5}
    [[ -f $data/train.parquet ]] || "$python" data_preprocess/gsm8k.py --source "${GSM8K:-openai/gsm8k}" --out "$data"
fi
# shellcheck disable=SC2086  # options are words
[[ -f $sft/config.json ]] || "$python" examples/sft_then_grpo/sft.py --model "$base" --data "$data/train.parquet" --out "$sft" $options

settings=(
    reward.models=[gsm8k]
    data.train_files="$data/train.parquet"
    data.val_files="$data/test.parquet"
    data.train_batch_size=256
    data.max_prompt_length=512
    data.max_response_length=512
    actor_rollout_ref.model.path="$sft"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.actor.ppo_mini_batch_size=64
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.001
    algorithm.adv_estimator=grpo
    trainer.n_gpus_per_node="${GPUS:-1}"
    trainer.total_epochs=5
    trainer.test_freq=10
    trainer.save_freq=20
    trainer.project_name=sft_then_grpo
    trainer.experiment_name=full
)
if ((small)); then
    settings+=(
        data.train_batch_size=4
        data.max_prompt_length=96
        data.max_response_length=8
        actor_rollout_ref.model.enable_gradient_checkpointing=False
        actor_rollout_ref.rollout.n=8
        actor_rollout_ref.actor.ppo_mini_batch_size=4
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048
        actor_rollout_ref.actor.optim.lr=1e-5
        trainer.total_training_steps=6
        trainer.test_freq=6
        trainer.save_freq=-1
        trainer.experiment_name=small
    )
fi

exec "$python" -m rmrl.main_ppo "${settings[@]}" "$@"
