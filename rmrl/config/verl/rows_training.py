"""Rows about `actor_rollout_ref.actor`, `.ref`, `.model` and `critic`."""

from __future__ import annotations

from rmrl.config.verl.key_rules import KeyFate, converted, no_effect, refused, renamed

_ACTOR = "actor_rollout_ref.actor"
_REF = "actor_rollout_ref.ref"
_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
_TRAINED = "(actor_rollout_ref.actor|critic)"
_ANY = "(actor_rollout_ref.actor|actor_rollout_ref.ref|critic)"
_KERNELS = "a faster way to compute the same numbers"
_MEMORY = "a way to need less memory for the same numbers"
_PLACE = "where the optimizer's state lies between its steps; megatron.optimizer_offload here"
_PROFILE = "trainer.profile_steps=[3] writes traces; metrics.jsonl has the seconds of each stage"
_NO_LAYOUT = "training has strategy=fsdp2, fsdp or megatron"
_ALL_SAVED = "everything that was saved is loaded; use save_contents"
_ULYSSES = (
    "the same numbers without it: every process computes whole sequences, which takes more memory"
    " for long ones (enable_gradient_checkpointing, fsdp_config.offload_policy, or"
    " strategy=megatron with megatron.context_parallel_size)"
)
_EXPERTS = (
    "experts' matrices are cut by tensor_model_parallel_size as the others are; the layout changes"
    " no number"
)

ACTOR_AND_CRITIC: tuple[KeyFate, ...] = (
    converted(
        "model_engine",
        "model_engine",
        "dp and veomni: strategy fsdp2; megatron: strategy=megatron; others are refused",
    ),
    renamed(f"{_ACTOR}.policy_loss", f"{_ACTOR}.policy_loss.loss_mode"),
    renamed(f"{_ACTOR}.(tau_pos|tau_neg)", f"{_ACTOR}.policy_loss.\\1"),
    converted(
        f"{_TRAINED}.ppo_micro_batch_size",
        "global_micro_batch",
        "over all processes: divided by trainer.nnodes x trainer.n_gpus_per_node it is"
        " ppo_micro_batch_size_per_gpu",
    ),
    no_effect(
        "critic.forward_(micro_batch_size|micro_batch_size_per_gpu|max_token_len_per_gpu)",
        "values are computed in micro-batches of critic.ppo_max_token_len_per_gpu tokens; their"
        " size changes no number",
    ),
    no_effect(
        f"{_TRAINED}.(rollout_n|data_loader_seed)", "follows from rollout.n and trainer.seed"
    ),
    no_effect(f"{_ANY}.ulysses_sequence_parallel_size", _ULYSSES, accepts=(1,)),
    no_effect(f"{_ANY}.(use_torch_compile|use_fused_kernels|use_prefix_grouper)", _KERNELS),
    no_effect(
        f"{_ANY}.entropy_(from_logits_with_chunking|from_logits_chunk_size|checkpointing)", _MEMORY
    ),
    no_effect(
        f"{_ANY}.(pad_to_length|pad_to_length_bucket)", "padding exists inside a micro-batch only"
    ),
    no_effect(f"{_ANY}.calculate_entropy", "the entropy is always among the metrics"),
    no_effect(f"{_ANY}.profiler.*", _PROFILE, accepts=(None, False)),
    no_effect(
        f"{_ACTOR}.(calculate_sum_pi_squared|sum_pi_squared_checkpointing)",
        "algorithm.adv_estimator=optimal_token_baseline states that it reads it, and a slice of"
        " positions is computed at a time",
    ),
    no_effect(
        f"{_TRAINED}.checkpoint.async_save",
        "files are written between two steps; they are brought to the disk and digested while the"
        " next ones run",
        accepts=(False, True),
    ),
    refused(f"{_TRAINED}.checkpoint.load_contents", _ALL_SAVED),
    refused(
        f"{_TRAINED}.checkpoint.strict",
        "a checkpoint must hold every weight of its model; leave it out",
        accepts=(True,),
    ),
    refused(
        f"{_ACTOR}.checkpoint.mbridge_config.*",
        "Hugging Face folders are written by rmrl's own conversion; leave it out",
    ),
    refused(
        f"{_ACTOR}.loss_scale_factor",
        "use loss_agg_mode=seq-mean-token-sum-norm, which divides by data.max_response_length",
    ),
    refused(
        f"{_ANY}.router_replay.*",
        "routing is computed anew in training; use algorithm.rollout_correction",
        accepts=("disabled",),
    ),
    renamed(
        f"{_TRAINED}.veomni.(param_offload|optimizer_offload|fsdp_size)", "\\1.fsdp_config.\\2"
    ),
    renamed(f"{_REF}.veomni.param_offload", f"{_REF}.param_offload"),
    no_effect(
        f"{_REF}.veomni.(optimizer_offload|fsdp_size)",
        "a reference has no optimizer, and is sharded as the policy is",
    ),
    no_effect(
        f"{_ANY}.veomni.(ulysses_parallel_size|expert_parallel_size|enable_full_shard|forward_prefetch|enable_forward_prefetch)",
        "how a model is spread over processes changes no number",
    ),
    no_effect(
        f"{_ANY}.veomni.(attn|moe|cross_entropy_loss|rms_norm|swiglu_mlp|rotary_pos_emb|load_balancing_loss)_implementation",
        _KERNELS,
    ),
    refused(
        f"{_ANY}.(veomni|engine|torchtitan|automodel).*",
        f"{_NO_LAYOUT}; use {_ACTOR}.fsdp_config.* or .megatron.*",
    ),
    refused(f"{_ACTOR}.freeze_vision_tower", "models read text alone; leave it out"),
    refused(f"{_ACTOR}.qat.*", "quantized training is not there; leave it out"),
    refused(f"{_ACTOR}.load_weight", "weights are always loaded; leave it out", accepts=(True,)),
)
OPTIMIZER: tuple[KeyFate, ...] = (
    renamed(f"{_TRAINED}.optim.clip_grad", "\\1.grad_clip"),
    renamed(
        f"{_TRAINED}.optim.(lr_decay_style|warmup_style)",
        "\\1.optim.lr_scheduler_type",
        accepts=(None,),
    ),
    converted(f"{_TRAINED}.optim.min_lr", "min_lr", "divided by lr it is optim.min_lr_ratio"),
    converted(
        f"{_TRAINED}.optim.override_optimizer_config.(adam_beta1|adam_beta2)",
        "adam_betas",
        "the two entries of optim.betas",
    ),
    renamed(f"{_TRAINED}.optim.override_optimizer_config.adam_eps", "\\1.optim.eps"),
    renamed(
        f"{_TRAINED}.optim.override_optimizer_config.(betas|eps|weight_decay)", "\\1.optim.\\2"
    ),
    no_effect(
        f"{_TRAINED}.optim.override_optimizer_config.(optimizer_cpu_offload|overlap_cpu_optimizer_d2h_h2d)",
        _PLACE,
    ),
    no_effect(
        f"{_TRAINED}.optim.override_optimizer_config.(optimizer_offload_fraction|offload_fraction)",
        _PLACE,
    ),
    no_effect(
        f"{_TRAINED}.optim.override_optimizer_config.use_precision_aware_optimizer",
        "without a dtype of its own it keeps float32 state, as it is here",
    ),
    no_effect(f"{_TRAINED}.optim.override_optimizer_config.(fused|foreach)", _KERNELS),
    refused(
        f"{_TRAINED}.optim.override_optimizer_config.(main_params|main_grads|exp_avg|exp_avg_sq)_dtype",
        "the optimizer's state is float32; leave it out",
        accepts=("fp32", "float32"),
    ),
    refused(
        f"{_TRAINED}.optim.override_optimizer_config.*",
        "the optimizer is AdamW with optim.betas, eps and weight_decay",
    ),
    refused(
        f"{_TRAINED}.optim.optimizer",
        "the optimizer is AdamW; leave it out",
        accepts=("AdamW", "adamw", "adam"),
    ),
    refused(
        f"{_TRAINED}.optim.optimizer_impl",
        "the optimizer is AdamW; leave it out",
        accepts=("torch.optim",),
    ),
    refused(
        f"{_TRAINED}.optim.total_training_steps",
        "use trainer.total_training_steps",
        accepts=(-1, 0),
    ),
    refused(
        f"{_TRAINED}.optim.lr_decay_steps",
        "the learning rate falls until the last step; leave it out",
    ),
    refused(
        f"{_TRAINED}.optim.lr_warmup_init",
        "the warm-up starts at 0; leave it out",
        accepts=(0, 0.0),
    ),
    refused(f"{_TRAINED}.optim.num_cycles", "cosine falls once; leave it out", accepts=(0.5,)),
    refused(
        f"{_TRAINED}.optim.weight_decay_incr_style",
        "weight decay is constant; leave it out",
        accepts=("constant",),
    ),
    no_effect(
        f"{_TRAINED}.optim.(lr_wsd_decay_style|lr_wsd_decay_steps)",
        "settings of a schedule that is not there",
    ),
    no_effect(
        f"{_TRAINED}.optim.zero_indexed_step",
        "the warm-up counts from the first step",
        accepts=(True,),
    ),
    refused(
        f"{_TRAINED}.optim.use_checkpoint_opt_param_scheduler",
        "a resumed run goes on with its schedule; leave it out",
    ),
)
FSDP: tuple[KeyFate, ...] = (
    renamed("critic.model.fsdp_config.*", "critic.fsdp_config.*"),
    renamed("critic.fsdp.(param_offload|optimizer_offload)", "critic.fsdp_config.\\1"),
    renamed(
        f"{_TRAINED}.fsdp_config.mixed_precision.(param_dtype|reduce_dtype)", "\\1.fsdp_config.\\2"
    ),
    refused(
        f"{_ANY}.fsdp_config.mixed_precision.buffer_dtype",
        "buffers are float32; leave it out",
        accepts=("fp32", "float32"),
    ),
    renamed(f"{_TRAINED}.fsdp_config.dtype", "\\1.fsdp_config.param_dtype"),
    renamed(f"{_REF}.fsdp_config.param_offload", f"{_REF}.param_offload"),
    no_effect(
        f"{_REF}.fsdp_config.optimizer_offload", "a reference has no optimizer", accepts=(False,)
    ),
    no_effect(
        f"{_REF}.fsdp_config.offload_policy",
        f"{_MEMORY}; use {_REF}.param_offload",
        accepts=(False,),
    ),
    no_effect(
        f"{_REF}.fsdp_config.(reshard_after_forward|fsdp_size)",
        "the reference is sharded as the policy is",
    ),
    converted(
        f"{_REF}.fsdp_config.(model_dtype|dtype|mixed_precision.param_dtype|mixed_precision.reduce_dtype)",
        "as_actor",
        "the reference has the policy's dtypes: equal ones are accepted",
    ),
    no_effect(f"{_ANY}.fsdp_config.(use_torch_compile|forward_prefetch)", _KERNELS),
    no_effect(
        f"{_ANY}.fsdp_config.entropy_(from_logits_with_chunking|from_logits_chunk_size|checkpointing)",
        _MEMORY,
    ),
    no_effect(f"{_ANY}.fsdp_config.ulysses_sequence_parallel_size", _ULYSSES, accepts=(1,)),
    no_effect(
        f"{_ANY}.fsdp_config.wrap_policy.*",
        "every transformer layer is a unit of its own; the layout changes no number",
    ),
    no_effect(
        f"{_ANY}.fsdp_config.(use_orig_params|use_no_sync_for_gradient_accumulation)",
        "a detail of the sharding",
    ),
    no_effect(
        f"{_ANY}.fsdp_config.(seed|forward_only|strategy)",
        "follows from trainer.seed, the role and actor.strategy",
    ),
    no_effect(
        f"{_ANY}.fsdp_config.(pad_to_length|pad_to_length_bucket)",
        "padding exists inside a micro-batch only",
    ),
    refused(
        f"{_ANY}.fsdp_config.full_determinism",
        "use trainer.seed; sums over processes are not bitwise reproducible",
    ),
    refused(
        f"{_ANY}.fsdp_config.(turbo_config|qat).*",
        f"{_NO_LAYOUT}; use strategy=fsdp2 and leave it out",
    ),
)
MEGATRON: tuple[KeyFate, ...] = (
    renamed(f"{_REF}.megatron.param_offload", f"{_REF}.param_offload"),
    no_effect(f"{_ANY}.megatron.use_mbridge", "Hugging Face's checkpoints are always read and written", accepts=(True, False)),
    no_effect(f"{_ANY}.megatron.vanilla_mbridge", "Hugging Face's checkpoints are read and written by rmrl's own conversion"),
    no_effect(f"{_ANY}.megatron.seed", "nothing is drawn in training: models have no dropout and start from a checkpoint"),
    no_effect(f"{_ANY}.megatron.(use_remove_padding|forward_only)", "how micro-batches are laid out changes no number"),
    no_effect(f"{_ANY}.megatron.dist_checkpointing_prefix", "no distributed checkpoint is read", accepts=("",)),
    converted(
        f"{_ANY}.megatron.(use_dist_checkpointing|dist_checkpointing_path)",
        "dist_checkpoint",
        "no effect where the distributed checkpoint is model.path converted, whose weights are read from model.path; refused where a run saved it",
    ),
    no_effect(f"{_REF}.megatron.expert_tensor_parallel_size", _EXPERTS, accepts=(None,)),
    converted(
        f"{_TRAINED}.megatron.(expert_model_parallel_size|expert_tensor_parallel_size)",
        "expert_layout",
        "experts' matrices are cut by tensor_model_parallel_size as the others are: as many processes hold a layer's experts, no number changes",
    ),
    no_effect(f"{_REF}.megatron.(grad_offload|optimizer_offload)", "a reference has no gradients and no optimizer"),
    refused(f"{_ANY}.megatron.override_mcore_model_config.*", "use model.override_config for what stands in config.json"),
    renamed(
        f"{_TRAINED}.megatron.override_transformer_config."
        "(sequence_parallel|context_parallel_size|tensor_model_parallel_size|pipeline_model_parallel_size|use_distributed_optimizer)",
        "\\1.megatron.\\2",
    ),
    no_effect(
        f"{_ANY}.megatron.override_transformer_config."
        "(use_flash_attn|attention_backend|use_fused_rmsnorm|use_fused_swiglu|use_naive_l2norm|context_parallel_algo|swiglu|normalization"
        "|moe_grouped_gemm|moe_token_dispatcher_type|moe_enable_deepep|moe_shared_expert_overlap|deallocate_pipeline_outputs)",
        f"{_KERNELS}, or what the model's config.json says anyway",
    ),
    refused(
        f"{_TRAINED}.megatron.override_transformer_config.(moe_aux_loss_coeff|moe_z_loss_coeff)",
        "this loss of the router is not added (it would be weighted by micro-batch); leave it out",
        accepts=(0, 0.0),
    ),
    converted(
        f"{_REF}.megatron.*", "as_actor", "the reference has the actor's layout (actor.megatron): equal values are accepted"
    ),
)  # fmt: skip
REFERENCE: tuple[KeyFate, ...] = (
    converted(
        f"{_REF}.strategy",
        "as_actor",
        "the reference has the actor's strategy (actor.strategy): the same one is accepted",
    ),
    converted(
        f"({_REF}|{_ROLLOUT}).log_prob_(use_dynamic_bsz|micro_batch_size|micro_batch_size_per_gpu)",
        "logprob_batches",
        "True: micro-batches by log_prob_max_token_len_per_gpu alone; False: by"
        " log_prob_micro_batch_size_per_gpu",
    ),
    no_effect(f"{_REF}.rollout_n", "follows from rollout.n"),
    refused(f"{_REF}.load_weight", "weights are always loaded; leave it out", accepts=(True,)),
    refused(
        f"{_REF}.model.*", "the reference is the policy that training starts from; leave it out"
    ),
)
MODEL: tuple[KeyFate, ...] = (
    renamed(f"{_MODEL}.lora.(rank|alpha)", f"{_MODEL}.lora_\\1"),
    renamed(f"{_MODEL}.override_config.model_config.*", f"{_MODEL}.override_config.*"),
    renamed(
        f"{_MODEL}.override_config.attn_implementation",
        f"{_MODEL}.attn_implementation",
        accepts=("eager",),
    ),
    no_effect(f"({_MODEL}|critic.model).use_shm", "checkpoints are read from where they lie"),
    no_effect(f"({_MODEL}|critic.model).(use_fused_kernels|use_liger)", _KERNELS),
    no_effect(f"{_MODEL}.fused_kernel_options.*", _KERNELS),
    no_effect(f"{_MODEL}.tiled_mlp.*", _MEMORY, accepts=(False,)),
    refused(f"{_MODEL}.lora.type", "adapters are LoRA; leave it out", accepts=("lora",)),
    no_effect(
        f"{_MODEL}.is_custome_model",
        "prompts are rendered by the tokenizer's chat template, there too",
    ),
    refused(
        f"{_MODEL}.lora.lora_A_init_method",
        "adapters start from kaiming; leave it out",
        accepts=("kaiming",),
    ),
    refused(
        f"{_MODEL}.lora.lora_B_init_method",
        "adapters start from zero; leave it out",
        accepts=("zero",),
    ),
    refused(
        f"{_MODEL}.lora.*",
        "use model.lora_rank, model.lora_alpha and model.target_modules",
        accepts=(0, 0.0),
    ),
    refused(
        f"{_MODEL}.lora_adapter_path",
        "merge the adapter into a checkpoint and give that as model.path",
    ),
    refused(
        f"{_MODEL}.(exclude_modules|hf_config_path)",
        "use model.target_modules, and a checkpoint with its config.json",
    ),
    refused(f"{_MODEL}.mtp.*", "heads that predict several tokens are not trained; leave it out"),
    refused(
        f"{_MODEL}.torch_dtype",
        "use actor_rollout_ref.actor.fsdp_config.model_dtype, or megatron.dtype",
    ),
    refused(
        "(actor_rollout_ref.model|critic.model).external_lib",
        "install models as packages that transformers knows, or allow model.trust_remote_code",
    ),
)
