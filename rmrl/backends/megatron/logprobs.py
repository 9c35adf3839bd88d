"""Log-probabilities and entropies where every process has a share in the vocabulary, without
gathering logits.

Two small collectives per position slice, with [n] numbers each: the partition function's logarithm,
and each process's part in the target's logit and in the entropy. Energies need a third.

Shapes: N positions, flat    n in one slice    H hidden    v columns of the vocabulary in this
process
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from rmrl.models.linear_head import LinearHead, slice_elements
from rmrl.models.logprobs import EntropyMode, token_logprobs
from rmrl.models.softmax import Totals, gradient_of_all


def vocab_parallel_logprobs(
    hidden_NH: Tensor,
    targets_N: Tensor,
    *,
    head: LinearHead | Callable[[Tensor], Tensor],
    temperature: float,
    entropy: EntropyMode,
    vocab: int,
    group: dist.ProcessGroup,
    slice_rows: int,
    kept_rows: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """rmrl.models.logprobs.token_logprobs for softmax(logits / temperature) over the first `vocab`
    columns in all processes' logits.

    `head` maps hidden states [n, H] to this process's columns [n, v], where `vocab` and beyond are
    padding. All processes in `group` call it with the same positions and get the same float32 [N].
    `hidden_NH`'s gradient is this process's part.
    """

    return token_logprobs(
        hidden_NH,
        targets_N,
        head=head,
        temperature=temperature,
        entropy=entropy,
        slice_rows=slice_rows,
        kept_rows=kept_rows,
        softmax=ColumnsSoftmax(vocab, group),
    )


class ColumnsSoftmax:
    """rmrl.models.softmax.Softmax where this process has some columns; those at `vocab` and beyond
    are padding.

    The gradients depend on other columns only through the partition function and the entropy: the
    backward pass needs no communication.
    """

    def __init__(self, vocab: int, group: dist.ProcessGroup) -> None:
        self._vocab = vocab
        self._group = group

    def forward(
        self, scaled_NV: Tensor, targets_N: Tensor, *, entropy: bool
    ) -> tuple[Tensor, Totals]:
        self._mask_padding(scaled_NV)
        local_log_z_N = torch.logsumexp(scaled_NV, dim=-1)
        all_log_z_RN = local_log_z_N.new_empty(self._group.size(), *local_log_z_N.shape)
        dist.all_gather(list(all_log_z_RN), local_log_z_N, group=self._group)
        log_z_N = torch.logsumexp(all_log_z_RN, dim=0)
        column_N1, present_N1 = self._columns(targets_N, scaled_NV.shape[1])
        terms = [scaled_NV.gather(1, column_N1).mul_(present_N1)[:, 0]]
        if entropy:
            scaled_NV.sub_(log_z_N[:, None])
            terms.append(-(scaled_NV.exp().mul_(scaled_NV)).sum(-1))
        sums = torch.stack(terms)
        dist.all_reduce(sums, group=self._group)
        return sums[0] - log_z_N, Totals(targets_N, log_z_N, sums[1] if entropy else None)

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
        self._mask_padding(scaled_NV)
        grad_NV = gradient_of_all(
            scaled_NV, totals, direct_N1=direct_N1, grad_entropy_N=grad_entropy_N, padded=True
        )
        column_N1, present_N1 = self._columns(totals.targets_N, scaled_NV.shape[1])
        return grad_NV.scatter_add_(1, column_N1, direct_N1 * present_N1)

    def energies(self, scaled_NV: Tensor, totals: Totals) -> Tensor:
        column_N1, present_N1 = self._columns(totals.targets_N, scaled_NV.shape[1])
        probabilities_NV = scaled_NV.sub_(totals.log_z_N[:, None]).exp_()  # padding has 0
        gradient_NV = probabilities_NV.scatter_add_(1, column_N1, present_N1.float().neg_())
        energies_N = gradient_NV.square_().sum(-1)
        dist.all_reduce(energies_N, group=self._group)
        return energies_N

    def _mask_padding(self, scaled_NV: Tensor) -> None:
        """Make padding so low that its probability is exactly 0 (and finite, or 0 times it would
        not be 0)."""
        first = self._group.rank() * scaled_NV.shape[1]
        scaled_NV[:, max(self._vocab - first, 0) :] = torch.finfo(torch.float32).min

    def _columns(self, targets_N: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """The targets' columns in this process (any column for another process's target), and True
        where the target is in this process; both [N, 1]."""
        column_N1 = targets_N[:, None] - self._group.rank() * columns
        return column_N1.clamp(0, columns - 1), (column_N1 >= 0) & (column_N1 < columns)


def agreed_slice_elements(device: torch.device, group: dist.ProcessGroup) -> int:
    """rmrl.models.linear_head.slice_elements in the process with the least free memory: all in
    `group` cut the positions alike."""
    elements = slice_elements(device)
    if device.type != "cuda" or group.size() == 1:
        return elements
    smallest = torch.tensor(elements, device=device)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN, group=group)
    return int(smallest)
