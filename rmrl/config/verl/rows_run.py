"""Rows about `actor_rollout_ref.rollout`, `algorithm`, `data`, rewards, `trainer` and what stands
at the top."""

from __future__ import annotations

from rmrl.config.verl.key_rules import KeyFate, converted, no_effect, refused, renamed

_ROLLOUT = "actor_rollout_ref.rollout"
_SPEED = "how fast, not what, the engine samples"
_PROFILE = "trainer.profile_steps=[3] writes traces; metrics.jsonl has the seconds of each stage"
_TEXT = "prompts and responses are text: rows with images, videos or sound cannot be trained on"
_TURNS = (
    "responses are single turns without tools: use a trainer with an agent loop for those, and rmrl"
    " score for its transcripts"
)
_ROWS = "bring rows in the parquet schema instead; see data_preprocess/"
_COPIES = "copies to HDFS are not made; use trainer.default_local_dir on a mounted folder"
_PUBLISHED = "the engine gets the policy's weights before the first step, whatever it has loaded"
_ROUTER = "routing is computed anew in training; use algorithm.rollout_correction"

ROLLOUT: tuple[KeyFate, ...] = (
    renamed(f"{_ROLLOUT}.tensor_model_parallel_size", f"{_ROLLOUT}.tensor_parallel_size"),
    converted(f"{_ROLLOUT}.name", "rollout_name", "vllm, sglang (also as sglang_async) and hf; trtllm is vllm, which samples the same distribution"),
    converted(
        f"{_ROLLOUT}.expert_parallel_size", "expert_parallel", "above 1: engine_kwargs.vllm.enable_expert_parallel=True"
    ),
    converted(
        f"{_ROLLOUT}.(prompt_length|response_length)", "lengths", "the same as data.max_prompt_length and data.max_response_length"
    ),
    no_effect(f"{_ROLLOUT}.mode", "the engine is always asynchronous", accepts=("async",)),
    no_effect(f"{_ROLLOUT}.calculate_log_probs", "the engine's log-probabilities are always returned", accepts=(True,)),
    no_effect(f"{_ROLLOUT}.load_format", _PUBLISHED),
    no_effect(f"{_ROLLOUT}.(layered_summon|update_weights_bucket_megabytes|checkpoint_engine).*", "use rollout.weight_transport"),
    no_effect(f"{_ROLLOUT}.(multi_stage_wake_up|cudagraph_capture_sizes|scheduling_policy)", _SPEED),
    no_effect(f"{_ROLLOUT}.(disable_log_stats|moe_load_balance_metrics_interval)", "metrics.jsonl has the engine's rates"),
    no_effect(f"{_ROLLOUT}.prometheus.*", "metrics.jsonl has the engine's rates"),
    no_effect(f"{_ROLLOUT}.trace.*", "scored samples are always written to <output>/samples.jsonl"),
    no_effect(f"{_ROLLOUT}.skip_tokenizer_init", "texts are decoded once, beside the engine"),
    no_effect(f"{_ROLLOUT}.agent.num_workers", _SPEED),
    no_effect(f"{_ROLLOUT}.profiler.*", _PROFILE, accepts=(None, False)),
    no_effect(f"{_ROLLOUT}.engine_kwargs.vllm.disable_mm_preprocessor_cache", "a cache of images; prompts are text"),
    no_effect(f"{_ROLLOUT}.engine_kwargs.vllm.mm_processor_cache_gb", "a cache of images; prompts are text"),
    renamed(f"{_ROLLOUT}.engine_kwargs.vllm.max_model_len", f"{_ROLLOUT}.max_model_len"),
    no_effect(f"{_ROLLOUT}.multi_turn.(format|max_parallel_calls)", "it is read where there are tools; responses are single turns"),
    no_effect(f"{_ROLLOUT}.multi_turn.(max_tool_response_length|tool_response_truncate_side)", "it is read where there are tools"),
    refused(f"{_ROLLOUT}.multi_turn.*", _TURNS),
    refused(f"{_ROLLOUT}.agent.default_agent_loop", _TURNS, accepts=("single_turn_agent",)),
    refused(f"{_ROLLOUT}.agent.*", _TURNS),
    refused(f"{_ROLLOUT}.over_sample_rate", "every response is waited for; leave it out", accepts=(0, 0.0)),
    refused(f"{_ROLLOUT}.enable_rollout_routing_replay", _ROUTER),
    refused(f"{_ROLLOUT}.pipeline_model_parallel_size", "use rollout.tensor_parallel_size", accepts=(1,)),
    refused(f"{_ROLLOUT}.logprobs_mode", "log-probabilities are those of sampling; leave it out", accepts=("processed_logprobs",)),
    refused(f"{_ROLLOUT}.(quantization|quantization_config_file)", "use rollout.engine_kwargs.vllm.quantization"),
    refused(f"{_ROLLOUT}.(mtp|disaggregation|skip_rollout|limit_images|full_determinism).*", "it is not there; leave it out"),
    refused(f"{_ROLLOUT}.(nnodes|n_gpus_per_node)", "use rollout.pool and trainer.resource_pools", accepts=(0,)),
    no_effect(f"{_ROLLOUT}.engine_kwargs.trtllm.*", "settings of TensorRT-LLM, in whose place vLLM samples"),
)  # fmt: skip
ALGORITHM: tuple[KeyFate, ...] = (
    converted(
        "algorithm.filter_groups.metric",
        "filter_metric",
        "acc and score are the same; seq_reward and seq_final_reward are reward",
    ),
    converted(
        "algorithm.rollout_correction.(rollout_rs|rollout_rs_threshold|rollout_is_threshold)",
        "rollout_correction",
        "token_k1, seq_sum_k1, seq_mean_k1 are token, sequence, geometric, with lower_upper as two"
        " keys; lower_upper of the weights is IcePop: rollout_is_outside=zero",
    ),
    converted(
        "algorithm.rollout_correction.(bypass_mode|bypass_old_logprob_for_rollout|loss_type|use_policy_gradient|use_pure_rollout_correction)",
        "bypass",
        "True with the clipped loss: algorithm.rollout_correction.bypass_mode; other losses there"
        " are refused",
    ),
    refused(
        "algorithm.rollout_correction.rollout_token_veto_threshold",
        "use rollout_correction.rollout_rs=token or sequence with its thresholds",
    ),
    converted(
        "actor_rollout_ref.actor.tis_imp_ratio_cap",
        "tis_cap",
        "above 0: rollout_is=token with this threshold",
    ),
)
DATA: tuple[KeyFate, ...] = (
    converted("data.gen_batch_size", "gen_batch_size", "prompts of one round of dynamic sampling; without it train_batch_size"),
    no_effect("data.(return_raw_input_ids|return_raw_chat|return_full_prompt|return_multi_modal_inputs)", "rows keep their messages",
              accepts=(True, False, "")),
    no_effect("data.(dataloader_num_workers|filter_overlong_prompts_workers)", "rows are tokenized once, before training"),
    no_effect("data.use_shm", "files are read once"),
    refused("data.validation_shuffle", "validation rows keep their order; shuffle the file instead"),
    refused("data.(custom_cls|datagen).*", _ROWS),
    refused("data.sampler.*", "rows are shuffled each epoch (data.shuffle); order the file and use data.shuffle=False"),
    refused("data.(image_key|video_key|audio_key|image_patch_size)", _TEXT),
    refused("data.(tool_config_path|mcp_tool_config_path|interaction_config_path)", _TURNS),
    refused("data.(filter_accuracy|accuracy_lower_bound|accuracy_upper_bound|oversample_factor)",
            "use algorithm.filter_groups, which leaves out groups without contrast"),
)  # fmt: skip
REWARD: tuple[KeyFate, ...] = (
    renamed("reward.custom_reward_function.*", "custom_reward_function.*"),
    renamed("reward.reward_manager.name", "reward_model.reward_manager"),
    renamed("reward.reward_kwargs.*", "reward_model.reward_kwargs.*"),
    renamed("reward.num_workers", "reward.rule_workers", "processes in which rules run"),
    renamed("reward.sandbox_fusion.*", "reward_model.sandbox_fusion.*"),
    renamed("reward.reward_model.model_path", "reward_model.model.path"),
    renamed("reward.reward_model.*", "reward_model.*"),
    refused(
        "reward.reward_manager.source",
        "give a rule: custom_reward_function.path",
        accepts=("register",),
    ),
    refused("reward.reward_manager.*", "give a rule: custom_reward_function.path"),
    refused("reward.compute_score_kwargs.*", "give a rule with custom_reward_function.path"),
)
TRAINER: tuple[KeyFate, ...] = (
    converted("trainer.device", "device", "auto, cuda and cpu; npu and others are refused"),
    converted(
        "trainer.max_critic_ckpt_to_keep",
        "critic_checkpoints",
        "one checkpoint holds policy and critic: trainer.max_actor_ckpt_to_keep; the same number is"
        " accepted",
    ),
    no_effect(
        "trainer.balance_batch",
        "batches are always balanced over processes by length; no number changes",
        accepts=(True,),
    ),
    no_effect(
        "trainer.rollout_data_dir",
        "scored samples are always written to <output>/samples.jsonl",
        accepts=(None,),
    ),
    no_effect(
        "trainer.validation_data_dir",
        "validation samples are always written to <output>/val_samples.jsonl",
        accepts=(None,),
    ),
    no_effect(
        "trainer.(use_legacy_worker_impl|ray_wait_register_center_timeout|use_v1)",
        "a detail of verl's processes",
    ),
    no_effect("actor_rollout_ref.nccl_timeout", "waits end after trainer.stall_timeout_s"),
    no_effect(
        "trainer.(npu_profile|controller_nsight_options|worker_nsight_options).*",
        _PROFILE,
        accepts=(None,),
    ),
    no_effect("(global_profiler|actor_rollout_ref.profiler).*", _PROFILE, accepts=(None, False)),
    refused("trainer.default_hdfs_dir", _COPIES),
    refused(
        "trainer.(del_local_ckpt_after_load|remove_previous_ckpt_in_save)",
        "use trainer.max_actor_ckpt_to_keep",
    ),
    refused(
        "trainer.esi_redundant_time",
        "use trainer.save_freq; Ctrl-C and SIGTERM save a checkpoint",
        accepts=(0,),
    ),
    refused(
        "trainer.(log_freq|ref_update_freq)",
        "it belongs to another algorithm than those here; leave it out",
        accepts=(1,),
    ),
)
TOP: tuple[KeyFate, ...] = (
    renamed("ray_init.*", "ray_kwargs.ray_init.*"),
    refused("ray_kwargs.timeline_json_file", "use ray timeline on the running cluster"),
    refused(
        "distillation.*",
        "a teacher is a reward here: reward.specs.<name>={kind: teacher, path: ...} with"
        " +recipe=distill",
    ),
    refused("transfer_queue.*", "batches go through the controller; leave it out"),
    refused("async_training.*", "use trainer.max_staleness with rollout.pool"),
    refused(
        "(model|rollout).*",
        "it belongs to verl's generation script; use python -m vllm and rmrl score for what it"
        " wrote",
    ),
    refused(
        "data.(path|output_path|n_samples|batch_size|response_key)",
        "it belongs to verl's generation script; use rmrl score",
    ),
)
