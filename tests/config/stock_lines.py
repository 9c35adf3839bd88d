"""Command lines of the kinds that verl's examples have, written for these tests; variables stand
for paths and models."""

from __future__ import annotations

BASE = """
data.train_files=$TRAIN data.train_batch_size=1024 data.max_prompt_length=512 data.max_response_length=1024
data.filter_overlong_prompts=True data.truncation=error actor_rollout_ref.model.path=$POLICY actor_rollout_ref.actor.optim.lr=1e-6
actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.actor.ppo_mini_batch_size=256
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 actor_rollout_ref.model.enable_gradient_checkpointing=True
actor_rollout_ref.actor.fsdp_config.param_offload=False actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16
actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.name=vllm
actor_rollout_ref.rollout.gpu_memory_utilization=0.6 trainer.critic_warmup=0 trainer.logger=["console"] trainer.project_name=stock
trainer.experiment_name=stock trainer.n_gpus_per_node=8 trainer.nnodes=1 trainer.save_freq=-1 trainer.total_epochs=15
trainer.val_before_train=False
"""
KL = (
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001"
    " actor_rollout_ref.actor.kl_loss_type=low_var_kl "
)
DYNAMIC = """
actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000
actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=24000
actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=24000
"""
CRITIC = """
algorithm.adv_estimator=gae critic.optim.lr=1e-5 critic.model.use_remove_padding=True critic.model.path=$POLICY
critic.model.enable_gradient_checkpointing=True critic.ppo_micro_batch_size_per_gpu=32 critic.model.fsdp_config.param_offload=False
"""
GROUPS = "actor_rollout_ref.rollout.n=5 algorithm.use_kl_in_reward=False "
CORRECTION = "algorithm.rollout_correction."
STOCK: dict[str, str] = {
    "grpo": "algorithm.adv_estimator=grpo " + KL + GROUPS,
    "grpo, sequences packed and kernels fused": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.model.use_fused_kernels=True "
        "actor_rollout_ref.actor.use_torch_compile=False " + KL + GROUPS + DYNAMIC
    ),
    "grpo, ulysses": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 "
        "actor_rollout_ref.ref.ulysses_sequence_parallel_size=2 " + KL + GROUPS
    ),
    "grpo, lora": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.rollout.load_format=safetensors "
        "actor_rollout_ref.rollout.layered_summon=True actor_rollout_ref.model.use_shm=True "
        + KL
        + GROUPS
    ),
    "grpo, profiled": (
        "algorithm.adv_estimator=grpo global_profiler.tool=nsys global_profiler.steps=[1,2] "
        "actor_rollout_ref.actor.profiler.enable=True actor_rollout_ref.actor.profiler.ranks=[0,1] "
        + GROUPS
    ),
    "dr_grpo": (
        "algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False"
        " actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"
        " actor_rollout_ref.actor.use_kl_loss=False " + GROUPS
    ),
    "dapo": (
        "algorithm.adv_estimator=grpo algorithm.filter_groups.enable=True"
        " algorithm.filter_groups.metric=acc data.gen_batch_size=1536"
        " algorithm.filter_groups.max_num_gen_batches=10 actor_rollout_ref.actor.clip_ratio_low=0.2"
        " actor_rollout_ref.actor.clip_ratio_high=0.28 actor_rollout_ref.actor.clip_ratio_c=10.0"
        " actor_rollout_ref.actor.loss_agg_mode=token-mean " + GROUPS + DYNAMIC
    ),
    "gspo": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.actor.policy_loss.loss_mode=gspo"
        " actor_rollout_ref.actor.clip_ratio_low=3e-4 actor_rollout_ref.actor.clip_ratio_high=4e-4"
        " actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean " + GROUPS
    ),
    "gmpo": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean "
        "actor_rollout_ref.actor.clip_ratio_low=0.4 actor_rollout_ref.actor.clip_ratio_high=0.4 "
        + GROUPS
    ),
    "gpg": (
        "algorithm.adv_estimator=gpg actor_rollout_ref.actor.policy_loss.loss_mode=gpg " + GROUPS
    ),
    "cispo": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.actor.policy_loss.loss_mode=cispo"
        " actor_rollout_ref.actor.clip_ratio_low=10 actor_rollout_ref.actor.clip_ratio_high=0.2 "
        + GROUPS
    ),
    "clip_cov": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov "
        + GROUPS
    ),
    "sapo": (
        "algorithm.adv_estimator=grpo actor_rollout_ref.actor.policy_loss.loss_mode=sapo"
        " actor_rollout_ref.actor.tau_pos=1.0 actor_rollout_ref.actor.tau_neg=1.05 " + GROUPS
    ),
    "ppo": CRITIC + "algorithm.use_kl_in_reward=False",
    "ppo, kl in the reward": (
        CRITIC
        + "algorithm.use_kl_in_reward=True algorithm.kl_penalty=kl algorithm.kl_ctrl.kl_coef=0.001"
    ),
    "pf_ppo": (
        CRITIC + "algorithm.use_pf_ppo=True algorithm.pf_ppo.reweight_method=pow"
        " algorithm.pf_ppo.weight_pow=2.0"
    ),
    "reinforce_plus_plus": "algorithm.adv_estimator=reinforce_plus_plus " + KL + GROUPS,
    "reinforce_plus_plus_baseline": (
        "algorithm.adv_estimator=reinforce_plus_plus_baseline " + KL + GROUPS
    ),
    "rloo": (
        "algorithm.adv_estimator=rloo algorithm.use_kl_in_reward=True algorithm.kl_penalty=kl"
        " actor_rollout_ref.rollout.n=5"
    ),
    "rloo, corrected": (
        f"algorithm.adv_estimator=rloo {CORRECTION}rollout_is=sequence"
        f" {CORRECTION}rollout_is_threshold=2.0 {CORRECTION}rollout_is_batch_normalize=true"
        f" {CORRECTION}rollout_rs=seq_mean_k1 {CORRECTION}rollout_rs_threshold=0.5_2.0 " + GROUPS
    ),
    "grpo, bypass": (
        f"algorithm.adv_estimator=grpo {CORRECTION}bypass_mode=true {CORRECTION}loss_type=ppo_clip "
        + GROUPS
    ),
    "remax": (
        "algorithm.adv_estimator=remax algorithm.use_kl_in_reward=True"
        " algorithm.kl_ctrl.kl_coef=0.001"
    ),
}
"""Name -> what a line has on top of BASE."""
