"""A model's structure, from its Hugging Face config, and a refusal where the numbers would not be
the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rmrl.backends.megatron.sizes import Sizes
from rmrl.errors import ConfigError

SHAPE = "shape"
"""Name of the model's shape among a checkpoint's tensors."""
ROPE_TYPES = ("default", "linear", "llama3")
"""Rotary embeddings that are a frequency per channel, whatever a row's length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The experts that replace feed-forward layers in every decoder layer."""

    count: int
    chosen: int
    """Experts of one token."""
    ffn: int
    """Width of one expert."""
    normalised: bool
    """True if the chosen experts' probabilities are divided by their sum."""

    @classmethod
    def of(cls, config: Any) -> Experts | None:
        """Read the experts from a Hugging Face config, None for a family without them."""
        if config.model_type != "qwen3_moe":
            return None
        return cls(
            count=config.num_experts,
            chosen=config.num_experts_per_tok,
            ffn=config.moe_intermediate_size,
            normalised=config.norm_topk_prob,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of one model, whole; H hidden, of which `heads` x `head_dim` need not be the
    product."""

    family: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    padded_vocab: int
    """`vocab` rounded up to a multiple of the tensor-parallel size. Rows beyond `vocab` belong to
    no token."""
    tied: bool
    """The output head is the embedding."""
    qkv_bias: bool
    qk_norm: bool
    eps: float
    positions: int
    """Longest row that the checkpoint was made for."""
    rope: tuple[float, ...]
    """Angle per position for each pair of channels, [head_dim / 2], scaling included."""
    experts: Experts | None = None

    @classmethod
    def of(cls, config: PretrainedConfig, sizes: Sizes, *, section: str) -> Shape:
        """Read the shape from a config. Raises ConfigError, with all reasons, for a family or
        variant that is not covered, and for sizes that do not divide it."""
        entry: Any = config
        # transformers gives the entry another name than the checkpoints have.
        entries = {**config.to_dict(), "num_experts": getattr(entry, "num_experts", None)}
        problems = sizes.problems(entries, section=section)
        if not problems:
            for reason in _not_covered(entry):
                problems.append(
                    f"{section}.strategy=megatron: the model has {reason}, which this backend does"
                    " not compute; use strategy=fsdp2"
                )
        if problems:
            raise ConfigError(problems)
        heads = entry.num_attention_heads
        return cls(
            family=entry.model_type,
            layers=entry.num_hidden_layers,
            hidden=entry.hidden_size,
            ffn=entry.intermediate_size,
            heads=heads,
            kv_heads=entry.num_key_value_heads or heads,
            head_dim=_head_dim(entry),
            vocab=entry.vocab_size,
            padded_vocab=-(-entry.vocab_size // sizes.tensor) * sizes.tensor,
            tied=entry.tie_word_embeddings,
            qkv_bias=entry.model_type == "qwen2",
            qk_norm=entry.model_type in ("qwen3", "qwen3_moe"),
            eps=entry.rms_norm_eps,
            positions=entry.max_position_embeddings,
            rope=tuple(_rope_frequencies(entry).tolist()),
            experts=Experts.of(entry),
        )


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _rope_frequencies(config: Any) -> Tensor:
    """Angles per position, float32 [head_dim / 2], equal to the family's own model's."""
    kind = _rope_type(config)
    if kind != "default":
        return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))[0]
    width = _head_dim(config)
    exponents = torch.arange(0, width, 2, dtype=torch.float32) / width
    return 1.0 / (config.rope_parameters["rope_theta"] ** exponents)


def _rope_type(config: Any) -> str:
    return config.rope_parameters.get("rope_type", "default")


def _not_covered(config: Any) -> Iterator[str]:
    if config.hidden_act != "silu":
        yield f"the activation {config.hidden_act}"
    if _rope_type(config) not in ROPE_TYPES:
        yield f"rope_type={_rope_type(config)} (covered: {', '.join(ROPE_TYPES)})"
    if config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
        yield f"partial_rotary_factor={config.rope_parameters['partial_rotary_factor']}"
    if getattr(config, "use_sliding_window", False):
        yield f"sliding-window attention (sliding_window={config.sliding_window})"
    for entry in ("attention_bias", "mlp_bias"):
        if getattr(config, entry, False):
            yield f"{entry}=true"
    if config.model_type == "qwen3_moe" and (
        config.decoder_sparse_step != 1 or config.mlp_only_layers
    ):
        yield (
            f"decoder_sparse_step={config.decoder_sparse_step} and"
            f" mlp_only_layers={config.mlp_only_layers} (layers without experts)"
        )
