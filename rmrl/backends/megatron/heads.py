"""The last stage's output layers. They return hidden states unchanged, so that the vocabulary
matrix or the value head is applied to response positions only.

Shapes: B rows    S padded length    N positions, flat    H hidden    v rows of the vocabulary in
this process
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmrl.backends.megatron.core import (
    TransformerConfig,
    make_sharded_tensors_for_checkpoint,
    parallel_state,
    tensor_parallel,
)


class ResponseHead(nn.Module):
    """Replaces megatron-core's vocabulary matrix, and owns its weight [v, H] if that did.

    Without its own weight (embedding and head are tied and in one process) it uses the embedding's.
    """

    def __init__(self, output_layer: nn.Module, config: TransformerConfig) -> None:
        super().__init__()
        weight: Any = output_layer.weight
        # the parameter itself: megatron-core has marked it
        self.register_parameter("weight", weight)
        self.sequence_parallel = config.sequence_parallel
        self.group: Any = parallel_state.get_tensor_model_parallel_group()

    def forward(
        self,
        hidden_SBH: Tensor,
        weight: Tensor | None = None,  # noqa: ARG002
        runtime_gather_output: bool | None = None,  # noqa: ARG002
    ) -> tuple[Tensor, None]:
        """Whole hidden states [S, B, H] in every tensor-parallel process.

        Each holds a share of the vocabulary and computes that share's part of the gradient: the
        backward pass adds them up.
        """
        if self.sequence_parallel:
            whole = tensor_parallel.gather_from_sequence_parallel_region(
                hidden_SBH, tensor_parallel_output_grad=True, group=self.group
            )
            return whole, None
        return _SumGradient.apply(hidden_SBH, self.group), None

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: Any = None
    ) -> dict[str, Any]:
        """The entries that megatron-core's vocabulary matrix would save: a row slice."""
        return _sharded(
            self, {"weight": 0}, prefix=prefix, offsets=sharded_offsets, metadata=metadata
        )


class _SumGradient(torch.autograd.Function):
    """The tensor itself; backward: all processes' gradients added up.

    megatron-core's copy_to_tensor_model_parallel_region, whose sum is lost by some versions where
    the gradient is not contiguous: a transposed output's is not.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


class ValueHead(nn.Module):
    """A critic's head: one number per position; the same weight [1, H] in every tensor-parallel
    process."""

    def __init__(self, config: TransformerConfig, device: torch.device) -> None:
        super().__init__()
        zeros = torch.zeros(1, config.hidden_size, dtype=config.params_dtype, device=device)
        self.weight = nn.Parameter(zeros)
        self.sequence_parallel = config.sequence_parallel
        self.group: Any = parallel_state.get_tensor_model_parallel_group()

    def forward(
        self,
        hidden_SBH: Tensor,
        weight: Tensor | None = None,  # noqa: ARG002
        runtime_gather_output: bool | None = None,  # noqa: ARG002
    ) -> tuple[Tensor, None]:
        """Whole hidden states [S, B, H]. Every process computes all values and so the whole
        gradient: none is added to another's."""
        if self.sequence_parallel:
            hidden_SBH = tensor_parallel.gather_from_sequence_parallel_region(
                hidden_SBH, tensor_parallel_output_grad=False, group=self.group
            )
        return hidden_SBH, None

    def values(self, hidden_NH: Tensor) -> Tensor:
        """Values [N], float32 from here on: bfloat16 has too few digits for the differences between
        them."""
        return hidden_NH.float() @ self.weight[0].float()

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: Any = None
    ) -> dict[str, Any]:
        """The weight, saved once."""
        return _sharded(self, {}, prefix=prefix, offsets=sharded_offsets, metadata=metadata)


def _sharded(
    head: ResponseHead | ValueHead,
    axes: dict[str, int],
    *,
    prefix: str,
    offsets: tuple[Any, ...],
    metadata: Any,
) -> dict[str, Any]:
    return make_sharded_tensors_for_checkpoint(
        head.state_dict(prefix="", keep_vars=True),
        prefix,
        axes,
        offsets,
        tp_group=head.group,
        dp_cp_group=metadata["dp_cp_group"],
    )
