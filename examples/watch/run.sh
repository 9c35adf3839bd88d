#!/usr/bin/env bash
# A policy that learns to please a weak judge, and a watcher that says so.
#   bash examples/watch/run.sh [key=value ...]
# BESIDE=1: the rule is rewarded beside the judge. HONEST=1: the rule alone is the reward.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}

[[ -f $models/tiny-arith/config.json ]] || "$python" examples/arithmetic/make_tiny_policy.py --out "$models/tiny-arith"
[[ -f $models/weak_judge/reward.yaml ]] || "$python" examples/watch/make_judge.py --policy "$models/tiny-arith" --out "$models/weak_judge"

judge=(reward="$models/weak_judge/reward.yaml" reward.engine.name=hf)
if ((${HONEST:-0})); then
    reward=(reward.models=[arithmetic,truth] trainer.experiment_name=honest)
elif ((${BESIDE:-0})); then
    reward=("${judge[@]}" reward.models=[weak_judge,arithmetic,truth] reward.weights=[0.1,1,0] trainer.experiment_name=beside)
else
    reward=("${judge[@]}" reward.models=[weak_judge,truth] trainer.experiment_name=judge)
fi

# The job of examples/arithmetic with another reward and smaller steps; of a key given twice the last counts.
exec bash examples/arithmetic/run.sh "${reward[@]}" \
    reward.specs.truth.function=reward_functions/arithmetic.py:compute_score \
    reward.specs.truth.watch.rows=0.25 \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.optim.lr=5e-5 \
    trainer.total_training_steps=100 \
    trainer.val_before_train=False \
    trainer.test_freq=-1 \
    trainer.project_name=watch \
    "$@"
