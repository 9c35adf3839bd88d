"""Build this process's model part as megatron-core modules, from the settings. The weights are
loaded afterwards, see rmrl.backends.megatron.load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rmrl.backends.base import TrainSettings
from rmrl.backends.megatron.core import (
    DistributedDataParallel,
    GPTModel,
    TransformerConfig,
    finalize_model_grads,
    parallel_state,
)
from rmrl.backends.megatron.cpu import adapted
from rmrl.backends.megatron.heads import ResponseHead, ValueHead
from rmrl.backends.megatron.layers import FusedParts, fused_parts, layers_of_stage
from rmrl.backends.megatron.shape import Shape
from rmrl.backends.megatron.sizes import Sizes
from rmrl.backends.megatron.transformer import ddp_config, model_dtype, transformer_config
from rmrl.errors import ConfigError
from rmrl.models.linear_head import LinearHead
from rmrl.models.loading import load_causal_lm, load_config
from rmrl.models.token_values import load_value_model, value_config


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronModel:
    """One model, as far as this process holds it."""

    shape: Shape
    sizes: Sizes
    config: TransformerConfig
    chunks: list[GPTModel]
    """One per virtual stage, bare."""
    modules: list[nn.Module]
    """Modules that the schedules call, one per chunk: the chunk in its gradient buffers where it
    trains, else the chunk itself."""
    role: Literal["actor", "ref", "critic"]
    device: torch.device
    wide_head: bool = False
    """As in LinearHead."""

    @property
    def first_stage(self) -> bool:
        """True if the embedding is in this process (in the first chunk)."""
        return self.chunks[0].pre_process

    @property
    def last_stage(self) -> bool:
        """True if the head is in this process (in the last chunk), and with it all results."""
        return self.chunks[-1].post_process

    @property
    def head(self) -> ResponseHead | ValueHead:
        """The head, in the last stage's processes."""
        head: Any = self.chunks[-1].output_layer
        return head

    def linear_head(self) -> LinearHead:
        """This process's rows in the vocabulary matrix [padded_vocab / tensor, H], for a policy or
        reference in the last stage."""
        head = self.head
        assert isinstance(head, ResponseHead)
        weight: Any = head.weight
        if weight is None:
            weight = self.chunks[-1].shared_embedding_or_output_weight()
        return LinearHead(weight, wide=self.wide_head)


def build_model(settings: TrainSettings, sizes: Sizes, device: torch.device) -> MegatronModel:
    """Build the role's model structure. Its parameters are uninitialised memory. Call in every
    process, after groups.join.

    Raises ConfigError for a model, or for settings, that this backend does not cover.
    """
    critic = settings.role == "critic"
    hf_config = value_config(settings.model) if critic else load_config(settings.model)
    shape = Shape.of(hf_config, sizes, section=settings.section)
    if settings.model.lora_rank > 0:
        section = "critic" if critic else "actor_rollout_ref"
        raise ConfigError(
            f"{section}.model.lora_rank={settings.model.lora_rank}:"
            f" {settings.section}.strategy=megatron trains all weights; use strategy=fsdp2, or"
            " lora_rank=0"
        )
    config = transformer_config(settings, shape, sizes)
    fused = fused_parts(settings)
    with adapted():
        stages = range(sizes.virtual or 1)
        chunks = [_chunk(shape, config, settings.role, stage, fused) for stage in stages]
        modules: list[nn.Module] = [*chunks]
        if settings.role == "ref":
            for chunk in chunks:
                chunk.requires_grad_(False).eval()
        else:
            modules = _with_gradients(chunks, config, settings)
    return MegatronModel(
        shape=shape,
        sizes=sizes,
        config=config,
        chunks=chunks,
        modules=modules,
        role=settings.role,
        device=device,
        wide_head=settings.model.float32_head,
    )


def language_model(settings: TrainSettings) -> PreTrainedModel:
    """The role's Hugging Face model on the meta device: its configs, and no weights."""
    load = load_value_model if settings.role == "critic" else load_causal_lm
    with torch.device("meta"):
        return load(settings.model, dtype=model_dtype(settings))


def _chunk(
    shape: Shape, config: TransformerConfig, role: str, stage: int, fused: FusedParts | None
) -> GPTModel:
    """This process's virtual stage `stage`."""
    place = parallel_state.get_pipeline_model_parallel_rank()
    virtual = config.virtual_pipeline_model_parallel_size
    last_place = config.pipeline_model_parallel_size - 1
    last_stage = (virtual or 1) - 1
    virtual_stage = None if virtual is None else stage
    chunk = GPTModel(
        config,
        layers_of_stage(shape, config, virtual_stage, fused=fused),
        vocab_size=shape.padded_vocab,
        max_sequence_length=shape.positions,
        pre_process=place == 0 and stage == 0,
        post_process=place == last_place and stage == last_stage,
        share_embeddings_and_output_weights=shape.tied and role != "critic",
        position_embedding_type="rope",
        parallel_output=True,
        vp_stage=virtual_stage,
    )
    chunk.rotary_pos_emb.inv_freq = torch.tensor(shape.rope, dtype=torch.float32, device=_device())
    if chunk.post_process:
        # A critic's vocabulary matrix is dropped here, before anything else is allocated.
        head: Any
        if role == "critic":
            head = ValueHead(config, _device())
        else:
            head = ResponseHead(chunk.output_layer, config)
        chunk.output_layer = head
    return chunk


def _device() -> Any:
    """Device on which megatron-core allocates. Call inside `adapted()`."""
    return torch.cuda.current_device()


def _with_gradients(
    chunks: list[GPTModel], config: TransformerConfig, settings: TrainSettings
) -> list[nn.Module]:
    """Wrap each chunk in its gradient buffers. The schedules then reduce gradients when a step
    ends."""
    wrapped: list[DistributedDataParallel] = []
    for stage, chunk in enumerate(chunks):
        ddp = ddp_config(settings)
        wrapped.append(DistributedDataParallel(config, ddp, chunk, disable_bucketing=stage > 0))

    def finalize(model: list[nn.Module], num_tokens: Tensor | None = None, **options: Any) -> None:  # noqa: ARG001
        # without dividing by tokens: losses are normalised before the backward pass
        finalize_model_grads(model, None, **options)

    config.finalize_model_grads_func = finalize
    if wrapped[0].ddp_config.overlap_grad_reduce:
        # Only the last micro-batch overlaps.
        no_sync: Any = [module.no_sync for module in wrapped]
        if len(wrapped) == 1:
            no_sync = wrapped[0].no_sync
        config.no_sync_func = no_sync
    return [*wrapped]
