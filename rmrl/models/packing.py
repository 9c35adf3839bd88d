"""Rows packed into one sequence: no padding is computed, and the attention keeps the rows apart by
their restarting positions.

    rows a b c | d e   ->   tokens a b c d e    positions 0 1 2 0 1

Worth it where the attention skips what it masks out: flash-attention and flex attention on CUDA.
SDPA keeps rows apart as well, but computes the whole square first; it serves tests.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

ATTENTIONS = ("auto", "sdpa", "flash_attention_2", "flex_attention")


def packs(model: ModelConfig, *, device: str) -> bool:
    """Whether rows are packed: asked for, and on CUDA or with an attention named. On CPU padding
    rows of like length is faster."""
    return model.use_remove_padding and (device == "cuda" or model.attn_implementation != "auto")


def attention(model: ModelConfig, *, device: str, dtype: torch.dtype) -> str:
    """transformers' name of the attention to compute with; `dtype` is that of compute.

    auto: sdpa; with packing on CUDA flash_attention_2 where it is installed and the dtype is one it
      knows, else flex_attention. Raises ConfigError for an unknown name, and for flash_attention_2
      where it cannot run.
    """
    name = model.attn_implementation
    if name not in ATTENTIONS:
        raise ConfigError(
            f"model.attn_implementation: nothing named '{name}'{did_you_mean(name, ATTENTIONS)}"
        )
    lacking = _flash_attention_lacks(device, dtype)
    if name == "auto":
        if not packs(model, device=device):
            return "sdpa"
        return "flex_attention" if lacking else "flash_attention_2"
    if name == "flash_attention_2" and lacking:
        raise ConfigError(
            f"model.attn_implementation=flash_attention_2 {lacking}; or set"
            " attn_implementation=auto"
        )
    return name


def set_attention(language_model: PreTrainedModel, name: str) -> None:
    """Compute with the attention that `attention` gave. Raises ConfigError where the model's family
    cannot."""
    config: Any = language_model.config
    if config._attn_implementation != name:
        language_model.set_attn_implementation(name)
    if config._attn_implementation != name:
        raise ConfigError(
            f"model.attn_implementation: models of type '{config.model_type}' cannot compute with"
            f" {name}: set attn_implementation=sdpa and use_remove_padding=false"
        )


def _flash_attention_lacks(device: str, dtype: torch.dtype) -> str:
    """What stands in the way of flash-attention and what to do about it; "" if nothing does."""
    if device != "cuda":
        return "needs CUDA: set trainer.device=cuda"
    if dtype not in (torch.bfloat16, torch.float16):
        return (
            f"computes in half precision, and compute is in {dtype}: set"
            " fsdp_config.param_dtype=bfloat16"
        )
    if importlib.util.find_spec("flash_attn") is None:
        return "needs the package flash_attn, which is not installed: pip install flash-attn"
    return ""


@torch.no_grad()
def check_rows_kept_apart(language_model: PreTrainedModel) -> None:
    """Decode two short rows packed and alone, before sharding. Raises ConfigError where a row
    changes with what stands before it.

    A family whose layers carry a state along the sequence, or that knows no positions, would
    otherwise train on wrong numbers, silently. The yardstick is what the same tokens give when they
    are one row in earnest.
    """
    language_model.eval()
    device = language_model.device
    ids_1S = torch.tensor([[2, 5, 3, 7, 4, 6, 5]], device=device)
    first, size = 4, ids_1S.shape[1]
    restarting_1S = torch.cat([torch.arange(first), torch.arange(size - first)])[None].to(device)
    alone = hidden_states(language_model, ids_1S[:, first:], None).float()
    packed = hidden_states(language_model, ids_1S, restarting_1S).float()[first:]
    joined = hidden_states(language_model, ids_1S, None).float()[first:]
    difference, leak = (packed - alone).abs().mean(), (joined - alone).abs().mean()
    if difference > max(
        0.1 * leak, 0.01 * alone.abs().mean()
    ):  # the second: rounding in half precision
        raise ConfigError(
            f"model.use_remove_padding=true: models of type '{language_model.config.model_type}' do"
            " not keep packed rows apart: set use_remove_padding=false"
        )


def hidden_states(
    language_model: PreTrainedModel, input_ids_BS: Tensor, position_ids_BS: Tensor | None
) -> Tensor:
    """The decoder's last hidden states, [B * S, H]. `position_ids_BS` None: rows are right-padded.

    A causal model never looks right, so padding needs no mask and attention takes its fast path.
    """
    positions = {} if position_ids_BS is None else {"position_ids": position_ids_BS}
    return language_model.base_model(
        input_ids=input_ids_BS, use_cache=False, **positions
    ).last_hidden_state.flatten(0, 1)
