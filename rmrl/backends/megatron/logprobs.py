"""Log-probabilities and entropies where every process has a share of the vocabulary, without
gathering logits.

Two small collectives per slice of positions, of [n] numbers each: the logarithm of the partition
function, and each process's part of the target's logit and of the entropy.

Shapes: N positions, flat    n those of one slice    H hidden    v columns of the vocabulary in this
process
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rmrl.models.logprobs import EntropyMode, token_logprobs


def vocab_parallel_logprobs(
    hidden_NH: Tensor,
    targets_N: Tensor,
    *,
    head: Callable[[Tensor], Tensor],
    temperature: float,
    entropy: EntropyMode,
    vocab: int,
    group: dist.ProcessGroup,
    slice_rows: int,
    kept_rows: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """rmrl.models.logprobs.token_logprobs for softmax(logits / temperature) over the first `vocab`
    columns of all processes' logits.

    `head` maps hidden states [n, H] to this process's columns [n, v], of which those at `vocab` and
    beyond are padding. All processes of `group` call it with the same positions and get the same
    float32 [N]; the gradient of `hidden_NH` is this process's part of it.
    """

    def from_columns(
        logits_nv: Tensor, targets_n: Tensor, *, temperature: float, entropy: EntropyMode
    ) -> tuple[Tensor, Tensor | None]:
        logprobs_n, entropy_n = _OfColumns.apply(
            logits_nv, targets_n, temperature, entropy != "none", vocab, group
        )
        if entropy == "detached":
            entropy_n = entropy_n.detach()
        return logprobs_n, entropy_n

    return token_logprobs(
        hidden_NH,
        targets_N,
        head=head,
        temperature=temperature,
        entropy=entropy,
        slice_rows=slice_rows,
        kept_rows=kept_rows,
        from_logits=from_columns,
    )


class _OfColumns(torch.autograd.Function):
    """log p(target) and H(p) for p = softmax(z), z = logits / temperature, where this process has
    some columns.

    d log p_t / dz_v = 1[v = t] - p_v          d H / dz_v = -p_v (log p_v + H)

    Both depend on other columns only through the partition function and the entropy: the backward
    pass needs no communication.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits_nv: Tensor,
        targets_n: Tensor,
        temperature: float,
        with_entropy: bool,
        vocab: int,
        group: dist.ProcessGroup,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.first = group.rank() * logits_nv.shape[1]
        ctx.vocab = vocab
        ctx.temperature = temperature
        scaled_nv = _scaled(ctx, logits_nv)
        own_log_z_n = torch.logsumexp(scaled_nv, dim=-1)
        all_log_z_rn = own_log_z_n.new_empty(group.size(), *own_log_z_n.shape)
        dist.all_gather(list(all_log_z_rn), own_log_z_n, group=group)
        log_z_n = torch.logsumexp(all_log_z_rn, dim=0)
        column_n1, present_n1 = _own(ctx, targets_n, logits_nv.shape[1])
        terms = [scaled_nv.gather(1, column_n1).mul_(present_n1)[:, 0]]
        if with_entropy:
            scaled_nv.sub_(log_z_n[:, None])
            terms.append(-(scaled_nv.exp().mul_(scaled_nv)).sum(-1))
        sums = torch.stack(terms)
        dist.all_reduce(sums, group=group)
        entropy_n = sums[1] if with_entropy else None
        ctx.save_for_backward(logits_nv, targets_n, log_z_n, entropy_n)
        ctx.set_materialize_grads(False)
        return sums[0] - log_z_n, entropy_n

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_logprobs_n: Tensor | None, grad_entropy_n: Tensor | None
    ) -> tuple[Tensor, None, None, None, None, None]:
        logits_nv, targets_n, log_z_n, entropy_n = ctx.saved_tensors
        if grad_logprobs_n is None:
            grad_logprobs_n = torch.zeros_like(log_z_n)
        direct_n1 = grad_logprobs_n[:, None]
        log_p_nv = _scaled(ctx, logits_nv).sub_(log_z_n[:, None])
        if grad_entropy_n is None:
            grad_nv = log_p_nv.exp_().mul_(-direct_n1)
        else:
            p_nv = log_p_nv.exp()
            grad_nv = log_p_nv.add_(entropy_n[:, None]).mul_(grad_entropy_n[:, None])
            grad_nv.add_(direct_n1).neg_().mul_(p_nv)
            # For padding the product may be infinity times zero.
            grad_nv.masked_fill_(p_nv == 0, 0.0)
        column_n1, present_n1 = _own(ctx, targets_n, logits_nv.shape[1])
        grad_nv.scatter_add_(1, column_n1, direct_n1 * present_n1)
        return grad_nv.div_(ctx.temperature).to(logits_nv.dtype), None, None, None, None, None


def _scaled(ctx: Any, logits_nv: Tensor) -> Tensor:
    """float32 logits / temperature, with padding so low that its probability is exactly 0 (and
    finite, or 0 times it would not be 0)."""
    scaled_nv = logits_nv.to(torch.float32, copy=True).div_(ctx.temperature)
    scaled_nv[:, max(ctx.vocab - ctx.first, 0) :] = torch.finfo(torch.float32).min
    return scaled_nv


def _own(ctx: Any, targets_n: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """The targets' columns in this process (any column for a target of another process), and True
    where the target is in this process; both [n, 1]."""
    column_n1 = targets_n[:, None] - ctx.first
    return column_n1.clamp(0, columns - 1), (column_n1 >= 0) & (column_n1 < columns)
