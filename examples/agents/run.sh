#!/usr/bin/env bash
# A policy learns to find a number with a tool: an environment of verifiers plays, its own reward and a reward per turn count.
#   bash examples/agents/run.sh [key=value ...]        any setting can be replaced or added
# AGENTS: folder of the environment of packages that has verifiers, made where it is missing. RUN: the run's folder. POLICY: the model.
# FAIL_SHARE: share of the tool's calls that fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON_BIN:-.venv/bin/python}
models=${MODELS:-.models}
agents=${AGENTS:-.venv-agents}
policy=${POLICY:-$models/tiny-arith}
data=${DATA:-.data/agents}
play='{"agent": {"runtime": {"type": "subprocess"}, "harness": {"id": "find_number", "fail_share": '${FAIL_SHARE:-0}'}}}'

[[ -n ${POLICY:-} || -f $policy/config.json ]] || "$python" examples/arithmetic/make_tiny_policy.py --out "$policy"
if [[ ! -x $agents/bin/python ]]; then
    "$python" -m venv "$agents"
    "$python" -m pip --python "$agents/bin/python" install --quiet "verifiers==0.4.*"
fi
[[ -f $data/train.parquet ]] || "$python" data_preprocess/verifiers_tasks.py --env find_number --python "$agents/bin/python" \
    --path examples/agents/envs --args "$play" --test-share 0.2 --out "$data" --log "$data.log"

exec "$python" -m rmrl.main_ppo \
    actor_rollout_ref.model.path="$policy" \
    actor_rollout_ref.rollout.source=verifiers \
    actor_rollout_ref.rollout.verifiers.env=find_number \
    actor_rollout_ref.rollout.verifiers.python="$agents/bin/python" \
    actor_rollout_ref.rollout.verifiers.path=[examples/agents/envs] \
    "actor_rollout_ref.rollout.verifiers.args=${play//\"/}" \
    actor_rollout_ref.rollout.verifiers.turns=3 \
    actor_rollout_ref.rollout.verifiers.at_once=96 \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.dtype=float32 \
    actor_rollout_ref.actor.fsdp_config.param_dtype=null \
    actor_rollout_ref.actor.ppo_mini_batch_size=12 \
    actor_rollout_ref.actor.ppo_epochs=2 \
    actor_rollout_ref.actor.optim.lr=3e-4 \
    data.train_files="$data/train.parquet" \
    data.val_files="$data/test.parquet" \
    data.train_batch_size=48 \
    data.max_prompt_length=64 \
    data.max_response_length=96 \
    reward.functions_dir=examples/agents/reward_functions \
    reward.models=[env.found,follows] \
    reward.weights=[1.0,0.5] \
    algorithm.adv_estimator=reinforce_plus_plus \
    algorithm.gamma=0.5 \
    trainer.n_gpus_per_node=1 \
    trainer.total_training_steps=30 \
    trainer.val_before_train=True \
    trainer.test_freq=10 \
    trainer.default_local_dir="${RUN:-runs/agents}" \
    "$@"
