"""log p(target) and entropy of softmax(logits / temperature), with their gradients, in few passes
over the logits.

Shapes: N positions, flat    V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the vocabulary that the backward pass reads again, per position."""

    targets_N: Tensor
    log_z_N: Tensor
    """Logarithm of the partition function of logits / temperature, float32."""
    entropy_N: Tensor | None
    """Nats, float32; None where it is not computed."""


class Softmax(Protocol):
    """The two passes over logits / temperature, float32 [N, V] or a share of its columns.

    d log p_t / dz_v = 1[v = t] - p_v          d H / dz_v = -p_v (log p_v + H)
    """

    def forward(
        self, scaled_NV: Tensor, targets_N: Tensor, *, entropy: bool
    ) -> tuple[Tensor, Totals]:
        """log p(target) [N] and the totals; `scaled_NV` may be overwritten."""
        ...

    def backward(
        self,
        scaled_NV: Tensor,
        totals: Totals,
        *,
        grad_logprobs_N: Tensor | None,
        grad_entropy_N: Tensor | None,
    ) -> Tensor:
        """Gradient with respect to `scaled_NV`, in its place. A gradient of None is zero."""
        ...

    def energies(self, scaled_NV: Tensor, totals: Totals) -> Tensor:
        """Energy of each target [N], computed in the place of `scaled_NV`, which `forward` has read
        without entropy.

        It is the squared length of log p_t's gradient, from 0 (p_t = 1) to 2:

            sum_v (1[v = t] - p_v)^2 = 1 - 2 p_t + sum_v p_v^2

        The left side keeps its digits where p_t is close to 1, the right one does not.
        """
        ...


def gradient_of_all(
    scaled_NV: Tensor,
    totals: Totals,
    *,
    direct_N1: Tensor,
    grad_entropy_N: Tensor | None,
    padded: bool = False,
) -> Tensor:
    """Both gradients but for the term of the target, in the place of `scaled_NV`. `direct_N1`: the
    gradient of the log-probabilities.

    `padded`: some columns have probability 0 by construction, where the product of the entropy's
    gradient may be infinity times zero. They get 0.
    """
    log_p_NV = scaled_NV.sub_(totals.log_z_N[:, None])
    if grad_entropy_N is None:
        return log_p_NV.exp_().mul_(-direct_N1)
    assert totals.entropy_N is not None
    p_NV = log_p_NV.exp()
    grad_NV = log_p_NV.add_(totals.entropy_N[:, None]).mul_(grad_entropy_N[:, None])
    grad_NV.add_(direct_N1).neg_().mul_(p_NV)
    if padded:
        grad_NV.masked_fill_(p_NV == 0, 0.0)
    return grad_NV


class WholeSoftmax:
    """The whole vocabulary in this process."""

    def forward(
        self, scaled_NV: Tensor, targets_N: Tensor, *, entropy: bool
    ) -> tuple[Tensor, Totals]:
        log_z_N = torch.logsumexp(scaled_NV, dim=-1)
        logprobs_N = scaled_NV.gather(-1, targets_N[:, None])[:, 0] - log_z_N
        entropy_N = None
        if entropy:
            scaled_NV.sub_(log_z_N[:, None])
            entropy_N = -(scaled_NV.exp().mul_(scaled_NV)).sum(-1)
        return logprobs_N, Totals(targets_N, log_z_N, entropy_N)

    def backward(
        self,
        scaled_NV: Tensor,
        totals: Totals,
        *,
        grad_logprobs_N: Tensor | None,
        grad_entropy_N: Tensor | None,
    ) -> Tensor:
        if grad_logprobs_N is None:
            grad_logprobs_N = torch.zeros_like(totals.log_z_N)
        direct_N1 = grad_logprobs_N[:, None]
        grad_NV = gradient_of_all(
            scaled_NV, totals, direct_N1=direct_N1, grad_entropy_N=grad_entropy_N
        )
        return grad_NV.scatter_add_(1, totals.targets_N[:, None], direct_N1)

    def energies(self, scaled_NV: Tensor, totals: Totals) -> Tensor:
        probabilities_NV = scaled_NV.sub_(totals.log_z_N[:, None]).exp_()
        less_N1 = torch.full_like(totals.log_z_N, -1.0)[:, None]
        gradient_NV = probabilities_NV.scatter_add_(1, totals.targets_N[:, None], less_N1)
        return gradient_NV.square_().sum(-1)


WHOLE = WholeSoftmax()


class OfLogits(torch.autograd.Function):
    """log p(target) and entropies [N] of given logits [N, V], which are kept for the backward
    pass."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_NV: Tensor,
        targets_N: Tensor,
        temperature: float,
        entropy: bool,
        softmax: Softmax,
    ) -> tuple[Tensor, Tensor | None]:
        scaled_NV = logits_NV.to(torch.float32, copy=True).div_(temperature)
        logprobs_N, totals = softmax.forward(scaled_NV, targets_N, entropy=entropy)
        ctx.save_for_backward(logits_NV, targets_N, totals.log_z_N, totals.entropy_N)
        ctx.temperature = temperature
        ctx.softmax = softmax
        ctx.set_materialize_grads(False)
        return logprobs_N, totals.entropy_N

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_logprobs_N: Tensor | None, grad_entropy_N: Tensor | None
    ) -> tuple[Tensor, None, None, None, None]:
        logits_NV, targets_N, log_z_N, entropy_N = ctx.saved_tensors
        grad_NV = ctx.softmax.backward(
            logits_NV.to(torch.float32, copy=True).div_(ctx.temperature),
            Totals(targets_N, log_z_N, entropy_N),
            grad_logprobs_N=grad_logprobs_N,
            grad_entropy_N=grad_entropy_N,
        )
        return grad_NV.div_(ctx.temperature).to(logits_NV.dtype), None, None, None, None
