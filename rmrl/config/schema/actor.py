"""Sections `actor_rollout_ref.model`, `.actor`, `.ref` and `critic`: the models that train, and the
reference."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from rmrl.config.schema.algorithm import KL_ESTIMATORS
from rmrl.config.schema.fields import (
    at_least,
    changeable,
    choice,
    decays,
    greater,
    not_negative,
    positive,
    share,
)

AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "prompt-mean",
)
DTYPES = ("float32", "bfloat16", "float16", "fp32", "bf16", "fp16", "half")


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    path: str | None = None
    """Local checkpoint or hub id of the policy."""
    tokenizer_path: str | None = None
    """Tokenizer of the policy. null: `path`."""
    custom_chat_template: str | None = None
    """Jinja text that replaces the tokenizer's chat template."""
    override_config: dict[str, Any] = field(default_factory=dict)
    """Entries that replace entries in the model's config.json."""
    enable_gradient_checkpointing: bool | None = changeable(None)
    """Recompute activations in the backward pass: less memory, up to a third more time. null: in
    no layer, every second or all, whichever is fastest in the memory that the plan leaves (on CPU
    in all)."""
    gradient_checkpointing_every: int | None = positive(None, may_change=True)
    """Recompute one in so many layers. null: 1, which is all layers, unless
    enable_gradient_checkpointing=null chooses."""
    enable_activation_offload: bool = changeable(False)
    """Keep the layer inputs that gradient checkpointing saves in host memory until the backward
    pass (CUDA). Long rows take less device memory, and training is slower."""
    trust_remote_code: bool = False
    """Allow the model to run code from its checkpoint."""
    lora_rank: int = not_negative(0)
    """Rank of the LoRA adapters (arXiv:2106.09685) that train in place of the weights. 0: all
    weights train."""
    lora_alpha: int = positive(16)
    """LoRA: the product of the adapters is scaled by lora_alpha / lora_rank."""
    target_modules: Any = "all-linear"
    """LoRA: names of the linear layers that get adapters, or all-linear."""
    use_remove_padding: bool | None = changeable(None)
    """Pack the rows in a micro-batch into one sequence where the attention keeps rows apart (CUDA).
    Elsewhere rows with similar lengths share a micro-batch. null: with strategies fsdp and fsdp2
    where flash-attention or varlen takes the model and its dtype."""
    share_prompts: bool | None = changeable(None)
    """Compute a prompt once for all its responses in a micro-batch (needs SDPA and rows that are
    not packed). null: on CPU. Model families that cannot share prompts compute row by row."""
    attn_implementation: str = choice(
        "auto",
        among=("auto", "sdpa", "flash_attention_2", "varlen", "flex_attention"),
        may_change=True,
    )
    """Attention in the training engine: auto, sdpa, flash_attention_2, varlen (torch's own kernel
    for packed rows) or flex_attention. auto: sdpa, with packing the fastest kernel that is
    installed."""

    float32_head: bool = False
    """Compute logits in float32 where the weights are in half precision, in training and in
    sampling: their log-probabilities differ less. On CPU it takes time. A critic, and a reward
    model in rmrl train-rm, do so anyway."""

    @property
    def recomputed_every(self) -> int:
        """One in so many layers recomputes its activations. 0: none does."""
        if self.enable_gradient_checkpointing is False:
            return 0
        return self.gradient_checkpointing_every or 1


@dataclass(kw_only=True, slots=True)
class OptimConfig:
    """AdamW."""

    lr: float = not_negative(1e-6)
    """Peak learning rate."""
    betas: list[float] = decays(0.9, 0.999)
    """AdamW's averaging coefficients."""
    eps: float = positive(1e-8)
    """AdamW's epsilon."""
    weight_decay: float = not_negative(0.01)
    """Decoupled weight decay."""
    lr_warmup_steps: int = at_least(-1, least=-1)
    """Linear warm-up in optimizer steps. -1: use lr_warmup_steps_ratio."""
    lr_warmup_steps_ratio: float = share(0.0)
    """Warm-up as a share of all training steps."""
    lr_scheduler_type: str = choice("constant", among=("constant", "linear", "cosine"))
    """constant, linear or cosine, after the warm-up."""
    min_lr_ratio: float = share(0.0)
    """Final learning rate as a share of lr, for linear and cosine."""


@dataclass(kw_only=True, slots=True)
class FSDPConfig:
    """Sharded training through torch.distributed."""

    model_dtype: str = choice("float32", among=DTYPES)
    """dtype of the master weights: float32 or bfloat16."""
    param_dtype: str | None = choice("bfloat16", among=(*DTYPES, None))
    """dtype of compute (mixed precision). null: the dtype of the master weights."""
    reduce_dtype: str = choice("float32", among=DTYPES)
    """dtype in which processes sum gradients."""
    reshard_after_forward: bool = changeable(True)
    """Free gathered parameters after the forward pass (ZeRO-3)."""
    param_offload: bool = changeable(False)
    """Keep parameters in host memory while responses are sampled and scored (CUDA)."""
    optimizer_offload: bool = changeable(False)
    """Keep optimizer state in host memory but for the optimizer's steps and checkpoints (CUDA)."""
    offload_policy: bool = changeable(False)
    """Keep parameters, gradients and optimizer state in host memory and copy each layer to the
    device when the layer computes (CUDA). Takes the least device memory and is the slowest.
    Replaces param_offload and optimizer_offload."""
    fsdp_size: int = changeable(-1)
    """Processes per shard group. -1: all processes. Smaller groups hold replicas of the shards."""
    ulysses_sequence_parallel_size: int = positive(1, may_change=True)
    """Processes that share every row: each computes some tokens in all layers, and some attention
    heads for all tokens (arXiv:2309.14509). For rows whose activations do not fit one device. Above
    1 rows are packed."""
    compile_layers: bool = changeable(False)
    """Compile the decoder layers with torch.compile, once for all row lengths. The first
    micro-batch waits for the compiler a minute or more."""


@dataclass(kw_only=True, slots=True)
class MegatronConfig:
    """strategy=megatron: training through megatron-core. Parallel sizes multiply. The processes'
    remaining factor is data parallel."""

    tensor_model_parallel_size: int = changeable(1)
    """Processes that share every layer's matrices."""
    pipeline_model_parallel_size: int = changeable(1)
    """Processes that share the layers, one stage each."""
    virtual_pipeline_model_parallel_size: int | None = changeable(None)
    """Stages per process, interleaved: smaller bubbles, more messages. null: 1."""
    context_parallel_size: int = changeable(1)
    """Processes that share every sequence."""
    expert_model_parallel_size: int = changeable(1)
    """Processes that share the experts in a mixture-of-experts model. The size divides the
    data-parallel processes."""
    sequence_parallel: bool = changeable(True)
    """With tensor parallelism: split activations between the matrices along the sequence as
    well."""
    use_distributed_optimizer: bool = changeable(True)
    """Shard float32 master weights and optimizer state over the data-parallel processes."""
    dtype: str = choice("bfloat16", among=("bfloat16", "float32"))
    """dtype of weights and compute: bfloat16 (the optimizer keeps float32 master weights) or
    float32."""
    transformer_engine: bool | None = changeable(None)
    """Use TransformerEngine's layers. Their norms round differently. null: where TransformerEngine
    is installed, on CUDA."""
    param_offload: bool = changeable(False)
    """Keep parameters in host memory while responses are sampled and scored (CUDA)."""
    grad_offload: bool = changeable(False)
    """Free the gradient buffers while responses are sampled and scored (CUDA)."""
    optimizer_offload: bool = changeable(False)
    """Keep optimizer state in host memory but for the optimizer's steps and checkpoints (CUDA)."""
    override_transformer_config: dict[str, Any] = field(default_factory=dict)
    """Entries that replace entries in megatron-core's TransformerConfig."""
    override_ddp_config: dict[str, Any] = field(default_factory=dict)
    """Entries that replace entries in megatron-core's DistributedDataParallelConfig."""


@dataclass(kw_only=True, slots=True)
class CriticMegatronConfig(MegatronConfig):
    """Overrides for the actor's settings. null: the actor's value."""

    tensor_model_parallel_size: int | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    pipeline_model_parallel_size: int | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    virtual_pipeline_model_parallel_size: int | None = changeable(None)
    """Stages per process, interleaved. null: the actor's value. 1: not interleaved, whatever the
    actor does."""
    context_parallel_size: int | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    expert_model_parallel_size: int | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    sequence_parallel: bool | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    use_distributed_optimizer: bool | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    dtype: str | None = choice(None, among=("bfloat16", "float32", None))  # pyright: ignore[reportIncompatibleVariableOverride]
    param_offload: bool | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    grad_offload: bool | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    optimizer_offload: bool | None = changeable(None)  # pyright: ignore[reportIncompatibleVariableOverride]

    def over(self, actor: MegatronConfig) -> MegatronConfig:
        """These settings with every null replaced by the actor's."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        merged = {
            name: {**getattr(actor, name), **value}
            for name, value in given.items()
            if isinstance(value, dict)
        }
        return replace(
            actor, **({name: value for name, value in given.items() if value is not None} | merged)
        )


@dataclass(kw_only=True, slots=True)
class CheckpointConfig:
    save_contents: list[str] = field(
        default_factory=lambda: ["model", "optimizer", "extra", "hf_model"]
    )
    """hf_model adds a Hugging Face folder (hf/, for the critic hf_critic/) in the compute dtype.
    The other contents are always saved, because a resumed run needs them."""


@dataclass(kw_only=True, slots=True)
class PolicyLossConfig:
    """The policy loss and the settings that only some losses read."""

    loss_mode: str = "vanilla"
    """Name in the table LOSSES, or package.module:function."""
    clip_cov_ratio: float = share(0.0002)
    """clip_cov: share of the tokens whose gradient is dropped."""
    clip_cov_lb: float = 1.0
    """clip_cov: only tokens whose covariance lies above this are candidates."""
    clip_cov_ub: float = 5.0
    """clip_cov: only tokens whose covariance lies below this are candidates."""
    kl_cov_ratio: float = share(0.0002)
    """kl_cov: share of the tokens that get a KL penalty. The tokens with the largest covariance get
    it."""
    ppo_kl_coef: float = not_negative(0.1)
    """kl_cov: coefficient of that KL penalty."""
    tau_pos: float = positive(1.0)
    """sapo: temperature of the soft gate where the advantage is positive."""
    tau_neg: float = positive(1.05)
    """sapo: temperature of the soft gate where the advantage is negative."""
    dro_beta: float = positive(0.1)
    """dro: strength of the pull towards the policy that sampled."""
    vespo_k_pos: float = not_negative(2.0)
    """vespo: exponent of the response's ratio where the advantage is not negative."""
    vespo_lambda_pos: float = not_negative(3.0)
    """vespo: rate at which a large ratio loses its weight, where the advantage is not negative."""
    vespo_k_neg: float = not_negative(3.0)
    """vespo: exponent of the response's ratio where the advantage is negative."""
    vespo_lambda_neg: float = not_negative(2.0)
    """vespo: rate at which a large ratio loses its weight, where the advantage is negative."""
    fipo_half_life: float = positive(32.0)
    """fipo: tokens after which a later token's log ratio counts half."""
    fipo_weight_low: float = not_negative(1.0)
    """fipo: smallest weight of an advantage."""
    fipo_weight_high: float = positive(1.2)
    """fipo: largest weight of an advantage."""
    fipo_safe_ratio: float = positive(10.0)
    """fipo: above this ratio the weight of a negative advantage lies in 0.8..1."""
    ipo_kl_coef: float = not_negative(0.001)
    """ipo: coefficient of the squared log ratio."""


BACKEND_SECTIONS = ("fsdp_config", "megatron")
"""Fields of TrainedConfig that hold the settings of only some training backends."""


@dataclass(kw_only=True, slots=True)
class TrainedConfig:
    """Settings that policy and critic share in training."""

    strategy: str = "fsdp2"
    """Training backend: fsdp2 (fully_shard), fsdp (FullyShardedDataParallel, same numbers) or
    megatron (megatron-core)."""
    ppo_mini_batch_size: int = positive(256)
    """Prompts per optimizer step (times rollout.n responses)."""
    ppo_micro_batch_size_per_gpu: int | None = positive(None, may_change=True)
    """Responses per forward pass and process. null: set by ppo_max_token_len_per_gpu alone."""
    use_dynamic_bsz: bool = changeable(True)
    """Fill micro-batches up to ppo_max_token_len_per_gpu tokens. False needs
    ppo_micro_batch_size_per_gpu."""
    ppo_max_token_len_per_gpu: int | None = positive(None, may_change=True)
    """Largest number of padded tokens per micro-batch and process (Megatron: and copy of the
    model). null: whichever is fastest in the memory that the plan leaves, on CPU 16384."""
    ppo_epochs: int = positive(1)
    """Passes over each step's batch."""
    shuffle: bool = False
    """Shuffle the batch before cutting it into mini-batches."""
    loss_agg_mode: str = choice("token-mean", among=AGGREGATIONS)
    """token-mean, token-sum, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm or
    prompt-mean."""
    grad_clip: float = positive(1.0)
    """Largest global gradient norm."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    fsdp_config: FSDPConfig = field(default_factory=FSDPConfig)
    megatron: MegatronConfig = field(default_factory=MegatronConfig)
    checkpoint: CheckpointConfig = changeable(factory=CheckpointConfig)

    @property
    def micro_batch_tokens(self) -> int:
        """ppo_max_token_len_per_gpu, or what it is where no plan has chosen it."""
        return self.ppo_max_token_len_per_gpu or 16384


@dataclass(kw_only=True, slots=True)
class ActorConfig(TrainedConfig):
    clip_ratio: float = not_negative(0.2)
    """PPO clip, both sides."""
    clip_ratio_low: float | None = not_negative(None)
    """Lower clip. null: clip_ratio."""
    clip_ratio_high: float | None = not_negative(None)
    """Upper clip. null: clip_ratio."""
    clip_ratio_c: float = greater(3.0, than=1)
    """Dual-clip bound for negative advantages. dppo_tv and dppo_kl: largest importance ratio for
    any advantage, 20 in their recipes."""
    policy_loss: PolicyLossConfig = field(default_factory=PolicyLossConfig)
    entropy_coeff: float = 0.0
    """Entropy bonus."""
    top_entropy_quantile: float = share(1.0)
    """Share of a micro-batch's tokens that have a policy loss. The tokens with the largest entropy
    have one (arXiv:2506.01939: 0.2). 1: all tokens."""
    off_policy_mask_threshold: float | None = positive(None)
    """Drop the policy loss where the advantage is negative and the response's mean log ratio
    (sampling policy to trained policy) lies above this (arXiv:2512.02556). null: never."""
    use_kl_loss: bool = False
    """Add kl_loss_coef * KL(policy || reference) to the loss."""
    kl_loss_coef: float = not_negative(0.001)
    """Coefficient of that KL term."""
    ratio_weighted_kl: bool = False
    """Multiply that KL term by pi_new / pi_old, so that its gradient stays right after the first
    update (arXiv:2512.02556)."""
    kl_loss_type: str = choice(
        "low_var_kl", among=(*KL_ESTIMATORS, *(f"{name}+" for name in KL_ESTIMATORS))
    )
    """Estimator: kl (k1), abs, mse (k2), low_var_kl (k3). A + after the name keeps the estimator's
    value and takes the gradient from k2."""


@dataclass(kw_only=True, slots=True)
class CriticConfig(TrainedConfig):
    """Section `critic`: the value model for algorithm.adv_estimator=gae."""

    enable: bool | None = None
    """null: where the advantage estimator needs values."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """`path` null: starts from the policy's checkpoint. A checkpoint with one label (a reward
    model) keeps its head."""
    strategy: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    """Training backend. null: the actor's."""
    megatron: CriticMegatronConfig = field(default_factory=CriticMegatronConfig)  # pyright: ignore[reportIncompatibleVariableOverride]
    """null: the actor's value. Entries in override_* are added to the actor's. Beside the policy
    (pool null) the sizes must be the same."""
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=1e-5))
    ppo_mini_batch_size: int | None = positive(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    """Prompts per optimizer step. null: the actor's."""
    ppo_epochs: int | None = positive(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    """Passes over each step's batch. null: the actor's."""
    ppo_max_token_len_per_gpu: int | None = positive(None, may_change=True)
    """Largest number of padded tokens per micro-batch and process (Megatron: and copy of the
    model). null: whichever is fastest in the memory that the plan leaves, on CPU 32768."""
    checkpoint: CheckpointConfig = changeable(
        factory=lambda: CheckpointConfig(save_contents=["model", "optimizer", "extra"])
    )
    cliprange_value: float = positive(0.5)
    """New values may leave the old ones by this much before their gradient is dropped."""
    pool: str | None = changeable(None)
    """Pool in trainer.resource_pools where the critic trains. null: beside the policy."""

    @property
    def micro_batch_tokens(self) -> int:
        """ppo_max_token_len_per_gpu, or what it is where no plan has chosen it."""
        return self.ppo_max_token_len_per_gpu or 32768


@dataclass(kw_only=True, slots=True)
class RefConfig:
    log_prob_micro_batch_size_per_gpu: int | None = positive(None)
    """Responses per forward pass in the reference. null: by tokens."""
    log_prob_max_token_len_per_gpu: int | None = positive(None)
    """Padded tokens per forward pass. null: the actor's."""
    param_offload: bool = False
    """Keep the reference in host memory between uses (CUDA)."""
