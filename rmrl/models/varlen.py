"""Causal attention over rows of different length laid one behind the other, each token looking at
its own row alone: torch's variable-length kernel on CUDA, row by row through SDPA elsewhere.

transformers knows it by the name `varlen` after `register`. No mask is made for it: the boundaries
of the rows are passed down with the call, where transformers has them for flash-attention.

Shapes: T tokens of all rows    R rows    n heads (keys and values may have fewer)    d channels
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from rmrl.errors import ConfigError
from rmrl.models.layer_configs import layer_configs
from rmrl.models.sequence_parallel import Slices

NAME = "varlen"
_HALF = (torch.bfloat16, torch.float16)
_LARGEST_HEAD = 256
_LAYER_TYPES = ("full_attention", "sliding_attention")
"""Layers that it can compute, of those that transformers' configs list."""


def register() -> None:
    """Make the attention known to transformers in this process; any number of times."""
    AttentionInterface.register(NAME, _forward)


def kernel_problem(dtype: torch.dtype) -> str:
    """Reason why torch's kernel cannot compute in `dtype` on CUDA, with a remedy; "" if it can."""
    if dtype not in _HALF:
        return (
            f"computes in half precision, and compute is in {dtype}: set"
            " fsdp_config.param_dtype=bfloat16"
        )
    if _kernel() is None:
        return f"needs torch.nn.attention.varlen, and torch {torch.__version__} lacks it: upgrade"
    if torch.cuda.is_initialized() and torch.cuda.get_device_capability() < (8, 0):
        return "needs a GPU of compute capability 8.0 (A100, RTX 30) or newer"
    return ""


def model_problem(language_model: PreTrainedModel) -> str:
    """Reason why a model cannot compute with this attention, "" if it can."""
    if any(name.endswith(".sinks") for name, _ in language_model.named_parameters()):
        return "has no attention sinks, and this model has them"
    for config in layer_configs(language_model.config.get_text_config()):
        problem = _layer_problem(config)
        if problem:
            return problem
    return ""


def _layer_problem(config: Any) -> str:
    """Reason why a layer with this config cannot compute with this attention, "" if it can."""
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return "has no soft cap of attention scores, and this model has one"
    others = set(getattr(config, "layer_types", None) or ()).difference(_LAYER_TYPES)
    if others:
        types = ", ".join(sorted(others))
        return f"computes full and sliding attention, and this model has layers of {types}"
    # With latent attention (DeepSeek-V2 and later) head_dim is the rotated part alone.
    head = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None)
    if head is None:
        heads = getattr(config, "num_attention_heads", None)
        head = config.hidden_size // heads if heads else None
    value_head = getattr(config, "v_head_dim", None) or head
    if head != value_head:
        return (
            "needs keys and values with as many channels, and this model's heads have"
            f" {head} and {value_head}"
        )
    if head is not None and (head % 8 or head > _LARGEST_HEAD):
        return f"needs heads of 8, 16 ... {_LARGEST_HEAD} channels, and this model's have {head}"
    return ""


@cache
def _kernel() -> Callable[..., Tensor] | None:
    """torch's function, where its arguments are those that are passed here."""
    try:
        function = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    except (ImportError, AttributeError):
        return None
    names = inspect.signature(function).parameters
    if {"scale", "window_size"}.issubset(names):
        return function
    return None


def has_kernel(tokens: Tensor) -> bool:
    """Whether torch's kernel takes tokens of this device and dtype."""
    return tokens.is_cuda and tokens.dtype in _HALF and _kernel() is not None


def attend(
    q_Tnd: Tensor,
    k_Tnd: Tensor,
    v_Tnd: Tensor,
    *,
    boundaries: Tensor,
    longest: int,
    lengths: Sequence[int] | None = None,
    scale: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Outputs [T, n, d]. `boundaries` is int32 [R + 1] on the tokens' device: where rows
    begin, and where the last one ends.

    `longest` is at least the length of the longest row, a plain number like all `lengths`, so that
    no layer waits for the device. `lengths` None: read from `boundaries`. `window`: a token sees
    so many tokens, itself included. None: all before it.
    """
    kernel = _kernel()
    if kernel is not None and has_kernel(q_Tnd):
        heads: dict[str, bool] = {}
        if q_Tnd.shape[1] != k_Tnd.shape[1]:
            if "enable_gqa" in inspect.signature(kernel).parameters:
                heads = {"enable_gqa": True}
            else:  # torch 2.11
                copies = q_Tnd.shape[1] // k_Tnd.shape[1]
                k_Tnd = k_Tnd.repeat_interleave(copies, dim=1)
                v_Tnd = v_Tnd.repeat_interleave(copies, dim=1)
        return kernel(
            q_Tnd,
            k_Tnd,
            v_Tnd,
            boundaries,
            boundaries,
            longest,
            longest,
            scale=scale,
            window_size=(-1 if window is None else window - 1, 0),
            **heads,
        )
    if lengths is None:
        lengths = boundaries.diff().tolist()
    rows: list[Tensor] = []
    parts = (q_Tnd.split(lengths), k_Tnd.split(lengths), v_Tnd.split(lengths))
    for q, k, v in zip(*parts, strict=True):
        rows.append(_row(q, k, v, scale=scale, window=window))
    return torch.cat(rows)


def _row(q_Snd: Tensor, k_Snd: Tensor, v_Snd: Tensor, **options: Any) -> Tensor:
    """Outputs [S, n, d] of one row."""
    window = options["window"]
    size = len(q_Snd)
    mask_SS = None
    if window is not None and window < size:
        mask_SS = torch.ones(size, size, dtype=torch.bool, device=q_Snd.device).tril()
        mask_SS = mask_SS.triu(1 - window)
    output = nn.functional.scaled_dot_product_attention(
        q_Snd.transpose(0, 1)[None],
        k_Snd.transpose(0, 1)[None],
        v_Snd.transpose(0, 1)[None],
        attn_mask=mask_SS,
        is_causal=mask_SS is None,
        scale=options["scale"],
        enable_gqa=q_Snd.shape[1] != k_Snd.shape[1],
    )
    return output[0].transpose(0, 1)


def _forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    slices: Slices | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """transformers' interface of an attention: [B, n, S, d] -> [B, S, n, d]. Without boundaries
    every one of the B rows is S long. With `slices` the tokens are this process's part, and the
    boundaries are those in whole rows."""
    refused = [
        name for name in ("softcap", "s_aux", "position_bias") if others.get(name) is not None
    ]
    if attention_mask is not None:
        refused.append("a mask")
    if dropout or not getattr(module, "is_causal", True):
        refused.append("dropout or attention in both directions")
    if refused:
        raise ConfigError(
            f"model.attn_implementation={NAME}: this model computes attention with"
            f" {', '.join(refused)}; set attn_implementation=sdpa and use_remove_padding=false"
        )
    rows, _, length, _ = query.shape
    if cu_seq_lens_q is None or max_length_q is None:
        total = rows * length
        cu_seq_lens_q = torch.arange(0, total + 1, length, dtype=torch.int32, device=query.device)
        max_length_q = length
    q, k, v = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
    if slices is not None:
        q, k, v = slices.to_heads(q, k, v)
    output = attend(
        q,
        k,
        v,
        boundaries=cu_seq_lens_q,
        longest=max_length_q,
        scale=scaling,
        window=sliding_window,
    )
    if slices is not None:
        output = slices.to_tokens(output)
    return output.unflatten(0, (rows, length)), None
