"""The reference command lines of similar trainers, as their users type them; variables stand for
paths."""

from __future__ import annotations

import shlex

TWO_JUDGES = """
algorithm.adv_estimator=reinforce_plus_plus data.train_files=$TRAIN data.val_files=$TRAIN data.train_batch_size=32
data.max_prompt_length=6144 data.max_response_length=2048 data.filter_overlong_prompts=True reward_model.enable=True
reward_model.reward_function=[rider_reward,consistency_reward] reward_model.model.path=[$RM1,$RM2] reward_model.micro_batch_size=4
reward_model.reward_vllm_rollout.temperature=[0.7,0.7] reward_model.reward_combine_func=['add','add']
reward_model.reward_model_type=grm reward_model.model.fsdp_config.param_offload=True reward_model.model.input_tokenizer=$POLICY
reward_model.reward_vllm_rollout.gpu_memory_utilization=[0.8,0.8] reward_model.reward_weight=[0.3,0.5]
reward_model.model.tensor_model_parallel_size=4 reward_model.reward_vllm_rollout.tensor_model_parallel_size=4
actor_rollout_ref.model.path=$POLICY actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_mini_batch_size=8
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.tensor_model_parallel_size=4
actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4
actor_rollout_ref.rollout.n=4 actor_rollout_ref.actor.use_dynamic_bsz=True algorithm.kl_ctrl.kl_coef=0.001
trainer.project_name=demo trainer.logger=['console'] trainer.val_before_train=False trainer.default_hdfs_dir=null
trainer.n_gpus_per_node=8 trainer.nnodes=1 trainer.save_freq=30 trainer.test_freq=1000000 trainer.total_epochs=15
"""
"""Single node, two judges, fold of add and add, REINFORCE++."""
SEVERAL_NODES = """
data.truncation=error actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.actor.use_kl_loss=True
actor_rollout_ref.actor.kl_loss_coef=0.0001 actor_rollout_ref.actor.kl_loss_type=low_var_kl
actor_rollout_ref.actor.entropy_coeff=0 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.temperature=0.8
actor_rollout_ref.ref.fsdp_config.param_offload=True trainer.default_local_dir=$OUT
"""
"""What comes on top on several nodes."""
PPO_GSM8K = """
data.train_files=$TRAIN data.val_files=$TEST data.train_batch_size=256 data.max_prompt_length=512 data.max_response_length=512
actor_rollout_ref.model.path=$POLICY actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_mini_batch_size=64
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.name=vllm
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.tensor_model_parallel_size=1
actor_rollout_ref.rollout.gpu_memory_utilization=0.4 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4
critic.optim.lr=1e-5 critic.model.path=$POLICY critic.ppo_micro_batch_size_per_gpu=4 algorithm.kl_ctrl.kl_coef=0.001
trainer.logger=console trainer.val_before_train=False trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.save_freq=10
trainer.test_freq=10 trainer.total_epochs=15
"""
"""PPO with a critic; the reward is the rule of the rows' data_source."""


def typed(line: str, **paths: object) -> list[str]:
    """The words of a command line as a program gets them, quotes inside lists kept; `paths` fill
    its variables."""
    for name in sorted(paths, key=len, reverse=True):
        line = line.replace(f"${name}", str(paths[name]))
    return shlex.split(line.replace("'", "\\'"))


def changed(words: list[str], **counts: object) -> list[str]:
    """Other paths and counts, nothing else: every key (with __ for dots) must stand in the command
    line already."""
    given = dict(word.split("=", 1) for word in words)
    new = {key.replace("__", "."): str(value) for key, value in counts.items()}
    assert set(new) <= set(given), f"not in the command line: {sorted(set(new) - set(given))}"
    return [f"{key}={value}" for key, value in {**given, **new}.items()]
