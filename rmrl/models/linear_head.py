"""log p(target) and entropy straight from hidden states and the head's matrix: logits exist for one
slice at a time, in both passes.

The logits' gradient is g_N * (1[v = t] - p_v) / temperature, and g_N, the gradient of the
loss, is known in the backward pass only (a policy's loss depends on the log-probabilities of whole
responses). So the backward pass computes a slice's logits again, which is one matrix product, and
adds the slice's part of the matrix's gradient to one sum in float32.

Shapes: N positions, flat    n those of one slice    H hidden    V vocabulary, or this process's
share of it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from rmrl.models.slice_sizes import SLICE_ELEMENTS, elements_within
from rmrl.models.softmax import Softmax, Totals

KEPT_ELEMENTS = 2**26
"""Logits of a micro-batch up to this many elements (256 MiB of float32) are kept for the backward
pass rather than computed again, and so are those of a single slice."""

_BLOCK_ELEMENTS = 2**24
"""Elements of the matrix's gradient that are added at once where the product is in half
precision."""
_WIDENED_ELEMENTS = 2**21
"""Matrix elements that a CPU converts to float32 at once: they stay in its cache."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def slice_elements(device: torch.device) -> int:
    """Logits to compute at once on `device`: a constant on CPU; on CUDA a power of two that follows
    the free memory, that which torch has cached included."""
    if device.type != "cuda":
        return SLICE_ELEMENTS
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return elements_within(free + cached)


def kept_elements(slice_size: int) -> int:
    """How many logits in a micro-batch are kept at most for the backward pass."""
    return max(KEPT_ELEMENTS, slice_size)


@dataclass(frozen=True, slots=True)
class LinearHead:
    """An output head without hooks or adapters: logits = cap * tanh(factor * (W h + b) / cap)."""

    weight_VH: Tensor
    bias_V: Tensor | None = None
    factor: float = 1.0
    softcap: float | None = None
    wide: bool = False
    """Logits are float32, not rounded to the weight's half precision. On a CPU they take two to
    four times as long."""

    def __call__(self, hidden_nH: Tensor) -> Tensor:
        """Logits [n, V], in the weight's dtype as the model's own forward pass computes them, or in
        float32 (`wide`)."""
        product = nn.functional.linear
        if self.wide:
            product = wide_linear
        logits_nV = product(hidden_nH, self.weight_VH, self.bias_V)
        return changed_logits(logits_nV, factor=self.factor, softcap=self.softcap)


def wide_linear(hidden_nH: Tensor, weight_VH: Tensor, bias_V: Tensor | None = None) -> Tensor:
    """W h + b in float32 from operands in any dtype, [..., V] without a gradient.

    Products in half precision are added up in float32 as always, and not rounded behind that.
    bfloat16 holds a logit between 16 and 32 to .125 only, and with it P(Yes) to about .03.
    """
    if weight_VH.dtype not in (torch.bfloat16, torch.float16):
        return nn.functional.linear(hidden_nH, weight_VH, bias_V)
    if hidden_nH.is_cuda:
        flat_nV = torch.mm(hidden_nH.flatten(0, -2), weight_VH.t(), out_dtype=torch.float32)
        logits_nV = flat_nV.unflatten(0, hidden_nH.shape[:-1])
    else:
        rows = max(1, _WIDENED_ELEMENTS // weight_VH.shape[1])
        wide_nH = hidden_nH.float()
        parts = [wide_nH @ part.float().t() for part in weight_VH.split(rows)]
        logits_nV = torch.cat(parts, dim=-1)
    if bias_V is not None:
        logits_nV.add_(bias_V)
    return logits_nV


def changed_logits(logits_nV: Tensor, *, factor: float, softcap: float | None) -> Tensor:
    """Scale the head's output and bound it softly, as some families do before the softmax."""
    if factor != 1.0:
        logits_nV = logits_nV * factor
    if softcap is not None:
        logits_nV = torch.tanh(logits_nV / softcap) * softcap
    return logits_nV


def plain_linear(module: nn.Module) -> bool:
    """Whether calling `module` is one matrix product with a whole matrix and nothing else: no
    adapter, no hook, no sharded weight."""
    if type(module) is not nn.Linear or isinstance(module.weight, DTensor):
        return False
    return not any(getattr(module, name) for name in _HOOKS)


def widen(layer: Any) -> None:
    """Let a `plain_linear` layer compute float32 outputs (`wide_linear`). Others stay."""
    if plain_linear(layer):
        layer.forward = lambda input: wide_linear(input, layer.weight, layer.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing:
    """How the positions are cut, and what is computed for each slice."""

    rows: int
    """Positions of a slice."""
    keep: bool
    """Keep all logits for the backward pass, in the head's dtype."""
    temperature: float
    entropy: bool
    softmax: Softmax

    def scaled(self, logits_nV: Tensor, *, copy: bool) -> Tensor:
        """float32 logits / temperature; without `copy` perhaps in place, in `logits_nV`."""
        return logits_nV.to(torch.float32, copy=copy).div_(self.temperature)


def head_logprobs(
    hidden_NH: Tensor, targets_N: Tensor, head: LinearHead, *, slicing: Slicing
) -> tuple[Tensor, Tensor | None]:
    """log p(target) and entropies (None unless computed), float32 [N].

    Differentiable in the hidden states, the weight and the bias. The gradients have their dtypes;
    weight's and bias's are summed over slices in float32 and rounded once.
    """
    return _HeadLogprobs.apply(
        hidden_NH,
        head.weight_VH,
        head.bias_V,
        targets_N,
        (head.factor, head.softcap, head.wide),
        slicing,
    )


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        changes: tuple[float, float | None, bool],
        slicing: Slicing,
    ) -> tuple[Tensor, Tensor | None]:
        head = LinearHead(weight_VH, bias_V, *changes)
        logprobs: list[Tensor] = []
        totals: list[Totals] = []
        saved: list[Tensor] = []
        for hidden_nH, targets_n in _slices(slicing.rows, hidden_NH, targets_N):
            logits_nV = head(hidden_nH)
            scaled_nV = slicing.scaled(logits_nV, copy=slicing.keep)
            logprobs_n, totals_n = slicing.softmax.forward(
                scaled_nV, targets_n, entropy=slicing.entropy
            )
            logprobs.append(logprobs_n)
            totals.append(totals_n)
            if slicing.keep:
                saved.append(logits_nV)
            del logits_nV, scaled_nV  # or the next slice is computed beside this one
        log_z_N = torch.cat([one.log_z_N for one in totals])
        entropies = [one.entropy_N for one in totals if one.entropy_N is not None]
        entropy_N = torch.cat(entropies) if entropies else None
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, log_z_N, entropy_N, *saved)
        ctx.changes = changes
        ctx.slicing = slicing
        ctx.set_materialize_grads(False)
        return torch.cat(logprobs), entropy_N

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_logprobs_N: Tensor | None, grad_entropy_N: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None]:
        hidden_NH, weight_VH, bias_V, targets_N, log_z_N, entropy_N, *saved = ctx.saved_tensors
        slicing: Slicing = ctx.slicing
        head = LinearHead(weight_VH, bias_V, *ctx.changes)
        to_hidden, to_weight, to_bias = ctx.needs_input_grad[:3]
        grad_hidden_NH = torch.empty_like(hidden_NH) if to_hidden else None
        weight_sum = _WeightSum(weight_VH, slices=-(-len(targets_N) // slicing.rows))
        grad_bias_V = None
        if to_bias:
            grad_bias_V = torch.zeros_like(bias_V, dtype=torch.float32)
        streams = (hidden_NH, targets_N, log_z_N, entropy_N, grad_logprobs_N, grad_entropy_N)
        for number, parts in enumerate(_slices(slicing.rows, *streams)):
            hidden_nH, targets_n, log_z_n, entropy_n, grad_logprobs_n, grad_entropy_n = parts
            logits_nV = saved[number] if slicing.keep else head(hidden_nH)
            copy = slicing.keep or head.softcap is not None
            grad_nV = slicing.softmax.backward(
                slicing.scaled(logits_nV, copy=copy),
                Totals(targets_n, log_z_n, entropy_n),
                grad_logprobs_N=grad_logprobs_n,
                grad_entropy_N=grad_entropy_n,
            ).div_(slicing.temperature)
            grad_nV = _before_changes(grad_nV, logits_nV, head)
            if grad_bias_V is not None:
                grad_bias_V.add_(grad_nV.sum(0))
            grad_nV = grad_nV.to(weight_VH.dtype)
            if grad_hidden_NH is not None:
                start = number * slicing.rows
                torch.mm(grad_nV, weight_VH, out=grad_hidden_NH[start : start + len(grad_nV)])
            if to_weight:
                weight_sum.add(grad_nV, hidden_nH)
            del logits_nV, grad_nV
        grad_weight_VH = weight_sum.result() if to_weight else None
        if grad_bias_V is not None:
            grad_bias_V = grad_bias_V.to(bias_V.dtype)
        return grad_hidden_NH, grad_weight_VH, grad_bias_V, None, None, None


def _slices(rows: int, *streams: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """The streams' parts in each slice, None for a stream that is None. One empty slice where there
    are no positions."""
    count = len(next(stream for stream in streams if stream is not None))
    for start in range(0, max(count, 1), rows):
        end = start + rows
        yield tuple(None if stream is None else stream[start:end] for stream in streams)


def _before_changes(grad_nV: Tensor, logits_nV: Tensor, head: LinearHead) -> Tensor:
    """The matrix product's gradient from the changed logits' one, in its place."""
    if head.softcap is not None:
        grad_nV.mul_((logits_nV.float() / head.softcap).square_().neg_().add_(1.0))
    if head.factor != 1.0:
        grad_nV.mul_(head.factor)
    return grad_nV


class _WeightSum:
    """The products that make the weight's gradient, summed over slices.

    Several slices are added up in float32 and rounded to the weight's dtype once. A single one is
    the product itself.
    """

    def __init__(self, weight_VH: Tensor, *, slices: int) -> None:
        self._weight_VH = weight_VH
        self._slices = slices
        self._sum_VH: Tensor | None = None

    def add(self, grad_nV: Tensor, hidden_nH: Tensor) -> None:
        """Add a slice's product."""
        wide = grad_nV.dtype not in (torch.bfloat16, torch.float16)
        if self._sum_VH is None:
            if self._slices == 1 or wide:
                self._sum_VH = grad_nV.t() @ hidden_nH
                return
            self._sum_VH = torch.zeros_like(
                self._weight_VH, dtype=torch.float32, memory_format=torch.contiguous_format
            )
        if wide:
            self._sum_VH.addmm_(grad_nV.t(), hidden_nH)
        elif grad_nV.is_cuda and "dtype_out" in torch.ops.aten.addmm.overloads():
            torch.addmm(
                self._sum_VH,
                grad_nV.t(),
                hidden_nH,
                out_dtype=torch.float32,
                out=self._sum_VH,
            )
        else:
            block = max(1, _BLOCK_ELEMENTS // hidden_nH.shape[1])
            columns = grad_nV.split(block, dim=1)
            for sum_vH, grad_nv in zip(self._sum_VH.split(block), columns, strict=True):
                sum_vH.add_(grad_nv.t() @ hidden_nH)

    def result(self) -> Tensor | None:
        """The gradient in the weight's dtype."""
        if self._sum_VH is None:
            return None
        return self._sum_VH.to(self._weight_VH.dtype)
