#!/usr/bin/env bash
# The customer-service task on several nodes of a Ray cluster, with the older key names. The checkout, its virtual environment, the models
# and the data lie under the same paths on every node (a shared file system).
#
#   bash examples/rider/run_multinode.sh head                          on the first node
#   bash examples/rider/run_multinode.sh worker <address of the head>  on each other node, e.g. worker 10.0.0.1:6379
#   bash examples/rider/run_multinode.sh submit [key=value ...]        once, on any of them, when all have joined
#   bash examples/rider/run_multinode.sh show [key=value ...]          prints the settings that submit would give, one a line
#
# POLICY, RM1, RM2: checkpoints of the policy and the two judges. DATA: folder of train.parquet, see data_preprocess/rider.py.
# NNODES, GPUS: nodes, and GPUS per node. TP: devices per engine. OUT: folder of checkpoints and logs, on the shared file system.
# RAY_JOBS: where the head's job server listens.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
bin=$root/.venv/bin
python=${PYTHON_BIN:-$bin/python}
ray=${RAY_BIN:-$bin/ray}
data=${DATA:-$root/.data/rider}
policy=${POLICY:-$root/.models/smollm2}
rm1=${RM1:-$policy}
rm2=${RM2:-$rm1}
nnodes=${NNODES:-2}
gpus=${GPUS:-8}
tp=${TP:-4}
# Ray asks every node for the token once there is one, and only looks for it when told to.
if [[ -s ~/.ray/auth_token ]]; then export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}; fi

settings=(
    algorithm.adv_estimator=reinforce_plus_plus
    data.train_files="$data/train.parquet"
    data.val_files="$data/train.parquet"
    data.train_batch_size=32
    data.max_prompt_length=6144
    data.max_response_length=2048
    data.filter_overlong_prompts=True
    data.truncation=error
    # Two judges; lists have one entry per judge, in the order of reward_function.
    reward_model.enable=True
    reward_model.reward_model_type=grm
    "reward_model.reward_function=[rider_reward,consistency_reward]"
    "reward_model.model.path=[$rm1,$rm2]"
    "reward_model.reward_weight=[0.3,0.5]"
    "reward_model.reward_combine_func=['add','add']"
    "reward_model.reward_vllm_rollout.temperature=[0.7,0.7]"
    "reward_model.reward_vllm_rollout.gpu_memory_utilization=[0.8,0.8]"
    reward_model.reward_vllm_rollout.tensor_model_parallel_size="$tp"
    # Replies of 2048 tokens, their dialogue and the verdict have to fit into what a judge reads.
    reward.engine.max_model_len=8192
    actor_rollout_ref.model.path="$policy"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.ppo_mini_batch_size=8
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.0001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.entropy_coeff=0
    actor_rollout_ref.actor.fsdp_config.param_offload=True
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4
    actor_rollout_ref.ref.fsdp_config.param_offload=True
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=4
    actor_rollout_ref.rollout.temperature=0.8
    actor_rollout_ref.rollout.tensor_model_parallel_size="$tp"
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4
    algorithm.kl_ctrl.kl_coef=0.001
    trainer.project_name=rider
    trainer.experiment_name=multinode
    trainer.default_local_dir="${OUT:-$root/runs/rider/multinode}"
    "trainer.logger=['console']"
    trainer.val_before_train=False
    trainer.nnodes="$nnodes"
    trainer.n_gpus_per_node="$gpus"
    trainer.save_freq=30
    trainer.test_freq=1000000
    trainer.total_epochs=15
)

what=${1:-}
shift || true
case $what in
head) "$ray" start --head --port="${RAY_PORT:-6379}" --dashboard-host=127.0.0.1 ;;
worker) "$ray" start --address="${1:?give the address of the head, e.g. 10.0.0.1:6379}" ;;
submit)
    [[ -f $data/train.parquet ]] || "$python" data_preprocess/rider.py --source examples/rider/dialogues.jsonl --out "$data"
    # The job starts on the head, in a folder of Ray's: the package and the reward functions are found through PYTHONPATH.
    exec "$ray" job submit --address="${RAY_JOBS:-http://127.0.0.1:8265}" \
        --runtime-env-json="{\"env_vars\": {\"PYTHONPATH\": \"$root\"}}" \
        -- "$python" -m rmrl.main_ppo "${settings[@]}" "$@"
    ;;
show) printf '%s\n' "${settings[@]}" "$@" ;;
*)
    echo "usage: bash examples/rider/run_multinode.sh head | worker <address> | submit [key=value ...] | show" >&2
    exit 2
    ;;
esac
