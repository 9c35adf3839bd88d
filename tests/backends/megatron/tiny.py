"""Tiny random checkpoints of the covered families, and settings that train them through
megatron-core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from rmrl.backends.base import TrainSettings
from rmrl.config.schema import ActorConfig, CriticConfig, MegatronConfig, ModelConfig, OptimConfig

VOCABULARY = 131
"""Odd, so that every tensor-parallel size pads it."""
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "initializer_range": 0.08,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "qwen3_moe": Qwen3MoeConfig,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
}
TEMPERATURE = 0.9


def tiny_config(family: str = "llama", *, tied: bool = True, **entries: Any) -> Any:
    """The config of a tiny model; `entries` go before ours."""
    experts = EXPERTS if family == "qwen3_moe" else {}
    return CONFIGS[family](
        **{**SHAPE, **experts, "tie_word_embeddings": tied, "pad_token_id": 0, **entries}
    )


def write_tiny(
    folder: Path,
    family: str = "llama",
    *,
    tied: bool = True,
    classifier: bool = False,
    seed: int = 0,
    **entries: Any,
) -> Path:
    """A random checkpoint with no two equal norm weights and no zero bias, so that a mixed-up name
    shows.

    `classifier`: a reward model with one label (a critic to start from) in place of a causal
    language model.
    """
    torch.manual_seed(seed)
    config = tiny_config(family, tied=tied, **({"num_labels": 1} if classifier else {}), **entries)
    model = (
        AutoModelForSequenceClassification if classifier else AutoModelForCausalLM
    ).from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
            elif name.endswith("bias"):
                parameter.copy_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def make_settings(
    folder: Path, *, role: str = "actor", model: dict[str, Any] | None = None, **megatron: Any
) -> TrainSettings:
    """float32 settings; `megatron`: entries of MegatronConfig, `model`: of ModelConfig."""
    trained: dict[str, Any] = {
        "strategy": "megatron",
        "megatron": MegatronConfig(**{"dtype": "float32", **megatron}),
        "ppo_epochs": 1,
        "optim": OptimConfig(lr=2e-3, lr_scheduler_type="cosine", lr_warmup_steps=2),
    }
    return TrainSettings(
        model=ModelConfig(path=str(folder), **(model or {})),
        actor=(
            ActorConfig()
            if role == "critic"
            else ActorConfig(use_kl_loss=True, kl_loss_coef=0.1, entropy_coeff=0.01, **trained)
        ),
        critic=CriticConfig(**trained, cliprange_value=0.2) if role == "critic" else None,
        role=role,
        temperature=TEMPERATURE,
        total_steps=20,
        max_response_length=10,
    )
