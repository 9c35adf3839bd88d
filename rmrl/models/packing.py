"""Rows packed into one sequence: no padding is computed, and the attention keeps the rows apart by
their boundaries or by their restarting positions.

    rows a b c | d e   ->   tokens a b c d e    positions 0 1 2 0 1    boundaries 0 3 5

Worth it where the attention skips what lies outside a row: flash-attention, torch's own kernel for
rows of different length, and flex attention on CUDA. SDPA keeps rows apart as well, but computes
the whole square first. It serves tests.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, masking_utils

from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError
from rmrl.models import varlen
from rmrl.models.activations import offloaded
from rmrl.models.sequence_parallel import Slices
from rmrl.registry import did_you_mean

ATTENTIONS = ("auto", "sdpa", "flash_attention_2", "varlen", "flex_attention")

_BY_BOUNDARIES = ("flash_attention_2", varlen.NAME)
"""Attentions that read the boundaries of rows, the fastest first. flash-attention would find them
in the positions too, again in every layer, each time waiting for the device."""

FLEX_MULTIPLE = 128
"""Packed rows are filled up to a multiple of this for flex attention: its block of tokens. A length
that is none would be compiled on its own."""


class Layout(Protocol):
    """Place of a micro-batch's rows in the sequences that the model computes, where these are not
    the padded rows."""

    def arguments(self, language_model: PreTrainedModel) -> dict[str, Any]:
        """Return the arguments of the decoder beside the tokens."""
        ...


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Place of the rows in one packed sequence; made once per micro-batch."""

    position_ids_1S: Tensor
    boundaries: Tensor
    """Starts of the rows and the end of the last one, int32 [rows + 1]."""
    longest: int
    """Tokens of the longest row."""
    slices: Slices | None = None
    """The processes that share the sequence. `position_ids_1S` are then this process's own."""

    def cut(self, slices: Slices) -> PackedRows:
        """Return what this process computes."""
        own = self.position_ids_1S[:, slices.own(self.position_ids_1S.shape[1])]
        return replace(self, position_ids_1S=own, slices=slices)

    @classmethod
    def of(
        cls, lengths: Sequence[int] | np.ndarray, to_device: Callable[[np.ndarray], Tensor]
    ) -> PackedRows:
        """The place of rows of `lengths` tokens one behind the other."""
        position_ids_S = np.concatenate([np.arange(length) for length in lengths])
        boundaries = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return cls(
            position_ids_1S=to_device(position_ids_S[None]),
            boundaries=to_device(boundaries),
            longest=int(max(lengths)),
        )

    def arguments(self, language_model: PreTrainedModel) -> dict[str, Any]:
        """Return positions and, for an attention that reads them, the boundaries."""
        config: Any = language_model.config
        arguments: dict[str, Any] = {"position_ids": self.position_ids_1S}
        by_boundaries = config._attn_implementation in _BY_BOUNDARIES
        if by_boundaries and _takes_boundaries(language_model):
            arguments |= {
                "cu_seq_lens_q": self.boundaries,
                "cu_seq_lens_k": self.boundaries,
                "max_length_q": self.longest,
                "max_length_k": self.longest,
            }
        if self.slices is not None:
            arguments["slices"] = self.slices
        return arguments


def packs(model: ModelConfig, *, device: str) -> bool:
    """Return whether the settings ask for packed rows, on CUDA or with an attention named. On CPU
    padding rows of similar length is faster. null does not ask: see `packs_fast`."""
    named = device == "cuda" or model.attn_implementation != "auto"
    return bool(model.use_remove_padding) and named


def packs_fast(
    model: ModelConfig, *, device: str, dtype: torch.dtype, language_model: PreTrainedModel
) -> bool:
    """Return whether use_remove_padding=null packs rows: on CUDA where a kernel made for packed
    rows takes the dtype and the model. Flex attention, which compiles for minutes, must be asked
    for."""
    if device != "cuda" or model.share_prompts:
        return False
    return any(
        model.attn_implementation in ("auto", name)
        and not _problem(name, device=device, dtype=dtype, language_model=language_model)
        for name in _BY_BOUNDARIES
    )


def attention(
    model: ModelConfig,
    *,
    device: str,
    dtype: torch.dtype,
    language_model: PreTrainedModel | None = None,
) -> str:
    """transformers' name of the attention to compute with; `dtype` is that of compute.

    auto: sdpa; with packing on CUDA the first of flash_attention_2 (where it is installed), varlen
    (where torch has it) and flex_attention that supports the dtype and `language_model`. Raises
    ConfigError for an unknown name, and for an attention that cannot run.
    """
    name = model.attn_implementation
    if name not in ATTENTIONS:
        raise ConfigError(
            f"model.attn_implementation: nothing named '{name}'{did_you_mean(name, ATTENTIONS)}"
        )
    if name == "auto":
        if not packs(model, device=device):
            return "sdpa"
        for fast in _BY_BOUNDARIES:
            if not _problem(fast, device=device, dtype=dtype, language_model=language_model):
                return fast
        return "flex_attention"
    problem = _problem(name, device=device, dtype=dtype, language_model=language_model)
    if problem:
        raise ConfigError(
            f"model.attn_implementation={name} {problem}; or set attn_implementation=auto"
        )
    return name


def _problem(
    name: str, *, device: str, dtype: torch.dtype, language_model: PreTrainedModel | None
) -> str:
    """Reason why an attention cannot run, with a remedy; "" if it can."""
    if name == "flash_attention_2":
        return _flash_attention_problem(device, dtype)
    if name == varlen.NAME:
        return _varlen_problem(device, dtype, language_model)
    return ""


def slow_packing(model: ModelConfig, *, device: str, dtype: torch.dtype) -> str:
    """Sentence for a user whose packed rows will go through flex attention, "" where they will
    not."""
    if device != "cuda" or model.attn_implementation not in ("auto", "flex_attention"):
        return ""
    if not packs(model, device=device):
        return ""
    if model.attn_implementation == "auto" and attention(model, device=device, dtype=dtype) != (
        "flex_attention"
    ):
        return ""
    reasons = [
        f"{name} {problem}"
        for name, problem in (
            ("flash-attention", _flash_attention_problem(device, dtype)),
            ("varlen", varlen.kernel_problem(dtype)),
        )
        if problem
    ]
    remedy = "; ".join(reasons) or "set model.attn_implementation=auto"
    return (
        "model.use_remove_padding=true computes with flex attention, which is compiled at the start"
        f" and slower than the kernels made for packed rows: {remedy}"
    )


def sharing_problem(
    model: ModelConfig,
    *,
    device: str,
    dtype: torch.dtype,
    language_model: PreTrainedModel | None = None,
) -> str:
    """Reason why processes cannot share rows (rmrl.models.sequence_parallel), with a remedy. "" if
    they can."""
    if model.share_prompts:
        return (
            "packs rows, and responses that share a prompt are in rows that are not packed: leave"
            " out share_prompts"
        )
    if model.attn_implementation not in ("auto", varlen.NAME):
        return (
            f"computes attention with {varlen.NAME}, not with {model.attn_implementation}: leave"
            " out attn_implementation"
        )
    problem = _varlen_problem(device, dtype, language_model)
    return problem and f"computes attention with {varlen.NAME}, which {problem}"


def _varlen_problem(device: str, dtype: torch.dtype, language_model: PreTrainedModel | None) -> str:
    """Reason why varlen cannot run, "" if it can. On CPU it goes row by row, in any dtype."""
    problem = varlen.kernel_problem(dtype) if device == "cuda" else ""
    if problem or language_model is None:
        return problem
    if not _takes_boundaries(language_model):
        return "needs the boundaries of rows, and this model does not pass them to its layers"
    return varlen.model_problem(language_model)


def _takes_boundaries(language_model: PreTrainedModel) -> bool:
    """Whether the decoder's forward method takes the keywords of flash-attention."""
    parameters = inspect.signature(language_model.base_model.forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def set_attention(language_model: PreTrainedModel, name: str) -> None:
    """Compute with the attention that `attention` returned. Raises ConfigError where the model's
    family has no such implementation."""
    config: Any = language_model.config
    if name == varlen.NAME:
        varlen.register()
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
        return (
            "needs the package flash_attn, which is not installed: pip install flash-attn"
            " --no-build-isolation"
        )
    return ""


@torch.no_grad()
def keeps_rows_apart(language_model: PreTrainedModel) -> bool:
    """Return whether a packed row does not depend on the row before it. Decodes two short rows
    packed and alone, before sharding.

    A family whose layers carry a state along the sequence, or that has no positions, would
    otherwise train on wrong numbers, silently. The scale of the test is the difference that the
    tokens of the first row make when they really precede the second.
    """
    language_model.eval()
    device = language_model.device
    ids_1S = torch.tensor([[2, 5, 3, 7, 4, 6, 5]], device=device)
    first = 4
    size = ids_1S.shape[1]
    rows = PackedRows.of([first, size - first], lambda array: torch.from_numpy(array).to(device))
    alone = hidden_states(language_model, ids_1S[:, first:], None).float()
    packed = hidden_states(language_model, ids_1S, rows).float()[first:]
    joined = hidden_states(language_model, ids_1S, None).float()[first:]
    return kept_apart(packed, alone=alone, joined=joined)


@torch.no_grad()
def check_only_attention_mixes(language_model: PreTrainedModel) -> None:
    """Decode a row in two halves that only attention puts together, before sharding. Raises
    ConfigError where other layers look along the row as well, which processes that share it would
    compute wrongly, silently."""
    language_model.eval()
    device = language_model.device
    ids_1S = torch.tensor([[2, 5, 3, 7, 4, 6]], device=device)
    rows = PackedRows.of([6], lambda array: torch.from_numpy(array).to(device))
    whole = hidden_states(language_model, ids_1S, rows).float()
    halves = replace(rows, position_ids_1S=rows.position_ids_1S.view(2, 3))
    cut = hidden_states(language_model, ids_1S.view(2, 3), halves).float()
    separate = hidden_states(language_model, ids_1S.view(2, 3), None).float()
    if not kept_apart(cut, alone=whole, joined=separate):
        raise ConfigError(
            "fsdp_config.ulysses_sequence_parallel_size: models of type"
            f" '{language_model.config.model_type}' look along a row outside of attention, so"
            " processes cannot share it: leave it out"
        )


def kept_apart(ours: Tensor, *, alone: Tensor, joined: Tensor) -> bool:
    """Return whether hidden states of a row in one sequence with others are those it has alone.

    The scale is the difference that the others make where the row really follows them (`joined`),
    and rounding in half precision.
    """
    leak = (joined - alone).abs().mean()
    rounding = 0.01 * alone.abs().mean()
    return bool((ours - alone).abs().mean() <= max(0.1 * leak, rounding))


def hidden_states(
    language_model: PreTrainedModel,
    input_ids_BS: Tensor,
    layout: Layout | None,
    *,
    offload: bool = False,
) -> Tensor:
    """The decoder's last hidden states, [B * S, H]. `layout` None: rows are right-padded.
    `offload`: activations wait for the backward pass in host memory.

    A causal model never looks right, so padding needs no mask and attention takes its fast path.
    """
    arguments: dict[str, Any] = {}
    if layout is not None:
        arguments = layout.arguments(language_model)
    with (
        offloaded() if offload else nullcontext(),
        _not_packed() if layout is None else nullcontext(),
    ):
        output = language_model.base_model(input_ids=input_ids_BS, use_cache=False, **arguments)
    return output.last_hidden_state.flatten(0, 1)


@contextmanager
def _not_packed() -> Iterator[None]:
    """Tell transformers that the rows are not packed. It would compare their positions on the
    device, and the host would wait for the result in every forward pass."""
    name = "find_packed_sequence_indices"
    original = getattr(masking_utils, name)
    setattr(masking_utils, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(masking_utils, name, original)
