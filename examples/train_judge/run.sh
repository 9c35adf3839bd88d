#!/usr/bin/env bash
# A judge trained by GRPO: it writes a reason and a verdict on two replies. Rewards: agreement with the label, the same verdict in the other
# order, brevity. `rmrl eval` measures it on held-out pairs before and after.
#   bash examples/train_judge/run.sh [key=value ...]        any setting of the training can be replaced or added
# POLICY: the judge to start from. PAIRS: hub id or file of preference pairs (see data_preprocess/preferences.py). DATA: the folder of the
# prepared files. RUNS: the folder of both evaluations and of the training. GPUS: devices.
# SMALL=1 (the default where there is no GPU): SmolLM2-135M, a few steps, on the twelve pairs of examples/judge_a_judge.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
small=${SMALL:-$(nvidia-smi -L >/dev/null 2>&1 && echo 0 || echo 1)}
rewards=examples/train_judge/reward_functions

if ((small)); then
    policy=${POLICY:-$models/smollm2}
    data=${DATA:-.data/train_judge${PAIRS:+_given}}
    size=small
    [[ -n ${POLICY:-} || -f $policy/config.json ]] || "$python" examples/assets/fetch_models.py --out "$models" --only smollm2
else
    policy=${POLICY:-Qwen/Qwen3-1.7B}
    data=${DATA:-data/train_judge}
    size=full
    PAIRS=${PAIRS:-Skywork/Skywork-Reward-Preference-80K-v0.2}
fi
runs=${RUNS:-runs/train_judge/$size}
if [[ ! -f $data/train.parquet ]]; then
    if [[ -z ${PAIRS:-} ]]; then
        "$python" examples/train_judge/make_data.py --train examples/judge_a_judge/pairs.jsonl --out "$data"
    else
        "$python" data_preprocess/preferences.py --source "$PAIRS" --test-share 0.02 --out "$data/pairs"
        "$python" examples/train_judge/make_data.py --train "$data/pairs/train.parquet" --test "$data/pairs/test.parquet" --out "$data"
    fi
fi

# measure <judge> <folder>: the verdicts on the held-out pairs, in both orders
measure() {
    [[ -f $2/report.json ]] || "$python" -m rmrl.main_eval \
        eval.format=pairs data.files="$data/held_out.jsonl" \
        reward.functions_dir="$rewards" reward.models=[pairwise] reward.specs.pairwise.path="$1" \
        reward.max_missing=1.0 out="$2"
}

settings=(
    reward.functions_dir="$rewards"
    reward.models=[agrees,consistent,brief]
    reward.weights=[1.0,0.3,0.1]
    data.train_files="$data/train.parquet"
    data.val_files="$data/test.parquet"
    data.train_batch_size=64
    data.max_prompt_length=4096
    data.max_response_length=512
    data.filter_overlong_prompts=True
    actor_rollout_ref.model.path="$policy"
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.actor.ppo_mini_batch_size=32
    actor_rollout_ref.actor.optim.lr=1e-6
    algorithm.adv_estimator=grpo
    trainer.n_gpus_per_node="${GPUS:-1}"
    trainer.total_training_steps=200
    trainer.test_freq=20
    trainer.save_freq=50
    trainer.default_local_dir="$runs/training"
    trainer.experiment_name=full
)
if ((small)); then
    settings+=(
        data.train_batch_size=2
        data.max_prompt_length=384
        data.max_response_length=96
        actor_rollout_ref.model.enable_gradient_checkpointing=False
        actor_rollout_ref.rollout.n=4
        actor_rollout_ref.rollout.max_model_len=768
        actor_rollout_ref.actor.ppo_mini_batch_size=2
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048
        actor_rollout_ref.actor.optim.lr=1e-5
        trainer.total_training_steps=3
        trainer.val_before_train=False
        trainer.test_freq=-1
        trainer.save_freq=3
        trainer.experiment_name=small
    )
fi

measure "$policy" "$runs/before"
"$python" -m rmrl.main_ppo "${settings[@]}" "$@"
newest=$(ls -d "$runs"/training/checkpoints/step_* 2>/dev/null | tail -1 || true)
if [[ -n $newest ]]; then
    "$python" -m rmrl.main_export checkpoint="$newest" out="$runs/judge" overwrite=true
    measure "$runs/judge" "$runs/after"
fi
