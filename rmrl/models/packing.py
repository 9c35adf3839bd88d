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
    """True if rows are packed: enabled in the settings, and on CUDA or with an attention named. On
    CPU padding rows of similar length is faster."""
    return model.use_remove_padding and (device == "cuda" or model.attn_implementation != "auto")


def attention(model: ModelConfig, *, device: str, dtype: torch.dtype) -> str:
    """transformers' name of the attention to compute with; `dtype` is that of compute.

    auto: sdpa; with packing on CUDA flash_attention_2 where it is installed and supports the dtype,
    else flex_attention. Raises ConfigError for an unknown name, and for flash_attention_2 where it
    cannot run.
    """
    name = model.attn_implementation
    if name not in ATTENTIONS:
        raise ConfigError(
            f"model.attn_implementation: nothing named '{name}'{did_you_mean(name, ATTENTIONS)}"
        )
    problem = _flash_attention_problem(device, dtype)
    if name == "auto":
        if not packs(model, device=device):
            return "sdpa"
        return "flex_attention" if problem else "flash_attention_2"
    if name == "flash_attention_2" and problem:
        raise ConfigError(
            f"model.attn_implementation=flash_attention_2 {problem}; or set"
            " attn_implementation=auto"
        )
    return name


def set_attention(language_model: PreTrainedModel, name: str) -> None:
    """Compute with the attention that `attention` returned. Raises ConfigError where the model's
    family has no such implementation."""
    config: Any = language_model.config
    if config._attn_implementation != name:
        language_model.set_attn_implementation(name)
    if config._attn_implementation != name:
        raise ConfigError(
            f"model.attn_implementation: models of type '{config.model_type}' cannot compute with"
            f" {name}: set attn_implementation=sdpa and use_remove_padding=false"
        )


def _flash_attention_problem(device: str, dtype: torch.dtype) -> str:
    """The reason why flash-attention cannot run, with a remedy; "" if it can."""
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
    depends on the row before it.

    A family whose layers carry a state along the sequence, or that has no positions, would
    otherwise train on wrong numbers, silently. The scale of the test is the difference that the
    tokens of the first row make when they really precede the second.
    """
    language_model.eval()
    device = language_model.device
    ids_1S = torch.tensor([[2, 5, 3, 7, 4, 6, 5]], device=device)
    first = 4
    size = ids_1S.shape[1]
    restarting_1S = torch.cat([torch.arange(first), torch.arange(size - first)])[None].to(device)
    alone = hidden_states(language_model, ids_1S[:, first:], None).float()
    packed = hidden_states(language_model, ids_1S, restarting_1S).float()[first:]
    joined = hidden_states(language_model, ids_1S, None).float()[first:]
    difference = (packed - alone).abs().mean()
    leak = (joined - alone).abs().mean()
    rounding = 0.01 * alone.abs().mean()  # in half precision
    if difference > max(0.1 * leak, rounding):
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
    positions: dict[str, Tensor] = {}
    if position_ids_BS is not None:
        positions["position_ids"] = position_ids_BS
    output = language_model.base_model(input_ids=input_ids_BS, use_cache=False, **positions)
    return output.last_hidden_state.flatten(0, 1)
