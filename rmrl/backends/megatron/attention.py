"""Causal attention through torch's SDPA for all layouts that megatron-core's own CPU-capable
attention refuses, on CPU and CUDA alike.

Rows are right-padded or packed one behind the other (PackedSeqParams, thd). They are whole or, with
context parallelism, in zigzag chunks: a row is cut into 2 * C chunks for C processes, and process r
has chunks r and 2C - 1 - r, so that all compute an equal part in the triangle. Queries stay in
their process; keys and values are gathered.

Shapes: S positions of this process    B rows    n heads    d channels per head    T packed
positions of this process
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rmrl.backends.megatron.core import (
    PackedSeqParams,
    TransformerConfig,
    parallel_state,
    tensor_parallel,
)
from rmrl.models import varlen


@dataclass(kw_only=True)
class PackedRows(PackedSeqParams):
    """Packed rows whose lengths are known here as plain numbers.

    `cu_seqlens_q` and `cu_seqlens_kv` are on the CPU: megatron-core's rotary embedding reads them
    as numbers in every layer, and would wait for the device each time.
    """

    boundaries: Tensor
    """Starts of the rows and the end of the last one, int32 on the tokens' device."""
    lengths: Sequence[int]
    """Padded lengths of the rows, before they are cut into chunks."""

    @classmethod
    def of(cls, lengths: Sequence[int], boundaries: Tensor) -> PackedRows:
        """Rows of `lengths`, with their `boundaries` on the device."""
        ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        longest = max(lengths)
        return cls(
            qkv_format="thd",
            cu_seqlens_q=ends,
            cu_seqlens_kv=ends,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
            boundaries=boundaries,
            lengths=lengths,
        )


def zigzag(length: int, *, size: int, rank: int) -> Tensor:
    """The positions that process `rank` of `size` has in a row with `length`, in order; int64
    [length / size].

    Raises ValueError unless 2 * size divides `length`.
    """
    if length % (2 * size):
        raise ValueError(
            f"a row of {length} positions does not divide into 2 * {size} chunks: pad it to a"
            f" multiple of {2 * size}"
        )
    chunk = torch.arange(length // (2 * size))
    return torch.cat([chunk + rank * len(chunk), chunk + (2 * size - 1 - rank) * len(chunk)])


class SDPACoreAttention(nn.Module):
    """A layer's core attention: queries, keys and values in, the heads' outputs out. Padding must
    be behind its row."""

    def __init__(
        self, config: TransformerConfig, *_: Any, softmax_scale: float | None = None, **__: Any
    ) -> None:
        super().__init__()
        assert config.kv_channels is not None
        self.scale = softmax_scale or config.kv_channels**-0.5
        self.group: Any = parallel_state.get_context_parallel_group()
        self.size = self.group.size()
        self.rank = self.group.rank()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        packed_seq_params: PackedSeqParams | None = None,
        **_: Any,
    ) -> Tensor:
        """[S, B, n, d] -> [S, B, n * d]; packed [T, n, d] -> [T, n * d]. Only causal:
        `attention_mask` must be None."""
        assert attention_mask is None, "rows are right-padded or packed: a mask is not needed"
        if packed_seq_params is None:
            return self._rows(query, key, value).flatten(2)
        assert isinstance(packed_seq_params, PackedRows)
        if self.size == 1 and varlen.has_kernel(query):
            outputs_Tnd = varlen.attend(
                query,
                key,
                value,
                boundaries=packed_seq_params.boundaries,
                longest=packed_seq_params.max_seqlen_q,
                scale=self.scale,
            )
            return outputs_Tnd.flatten(1)
        lengths = [length // self.size for length in packed_seq_params.lengths]
        parts = zip(query.split(lengths), key.split(lengths), value.split(lengths), strict=True)
        outputs: list[Tensor] = [
            self._rows(q[:, None], k[:, None], v[:, None])[:, 0] for q, k, v in parts
        ]
        return torch.cat(outputs).flatten(1)

    def _rows(self, q_SBnd: Tensor, k_SBnd: Tensor, v_SBnd: Tensor) -> Tensor:
        """Attention over rows with one length, for this process's positions."""
        if self.size == 1:
            return self._causal(q_SBnd, k_SBnd, v_SBnd)
        # In the backward pass each process gets the sum of all gradients of its own positions:
        # queries of every process have read them.
        gathered = tensor_parallel.gather_from_sequence_parallel_region(
            torch.stack([k_SBnd, v_SBnd], dim=1),
            tensor_parallel_output_grad=True,
            group=self.group,
        )
        chunks = gathered.chunk(2 * self.size)
        k_whole, v_whole = torch.cat([*chunks[0::2], *reversed(chunks[1::2])]).unbind(1)
        outputs: list[Tensor] = []
        own_chunks = (self.rank, 2 * self.size - 1 - self.rank)
        for chunk, q in zip(own_chunks, q_SBnd.chunk(2), strict=True):
            end = (chunk + 1) * len(q)
            outputs.append(self._causal(q, k_whole[:end], v_whole[:end]))
        return torch.cat(outputs)

    def _causal(self, q_SBnd: Tensor, k_KBnd: Tensor, v_KBnd: Tensor) -> Tensor:
        """Queries that are the last S of K positions."""
        q = q_SBnd.permute(1, 2, 0, 3)
        k = k_KBnd.permute(1, 2, 0, 3)
        v = v_KBnd.permute(1, 2, 0, 3)
        before = k.shape[2] - q.shape[2]
        mask = None
        if before:
            all_true = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
            mask = all_true.tril(before)
        shared = q.shape[1] // k.shape[1]
        if shared > 1 and (mask is not None or q.dtype == torch.float32):
            # Fused kernels for these inputs do not support shared keys, and torch would fall back
            # to whole S x S scores.
            k = k.repeat_interleave(shared, dim=1)
            v = v.repeat_interleave(shared, dim=1)
        grouped = q.shape[1] != k.shape[1]
        output = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.scale, enable_gqa=grouped
        )
        return output.permute(2, 0, 1, 3)
