"""Several processes compute one sequence ("DeepSpeed Ulysses", https://arxiv.org/abs/2309.14509).

    process 0   a b c | process 1   d e f     embedding, norms, MLP, head: own tokens, all channels
    process 0   heads 0 1 | process 1   heads 2 3      attention: all tokens, own heads

Only attention looks along the sequence. Before it the processes exchange heads for tokens, after it
tokens for heads.

Shapes: T tokens in the sequence    t this process's own, T / size    n heads (keys and values may
have fewer)    m this process's own    d channels
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd

from rmrl.models.layer_configs import layer_configs

_MEASURING_ROPE = {"dynamic", "longrope"}
"""Kinds whose angles depend on the largest position that a process computes."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The processes that share a sequence, ordered by their parts. All make every call together."""

    group: dist.ProcessGroup
    size: int
    rank: int
    """This process's place in the group."""

    @classmethod
    def of(cls, group: dist.ProcessGroup) -> Slices:
        return cls(group, group.size(), group.rank())

    def own(self, total: int) -> slice:
        """Return this process's positions where the sequence has `total` tokens, a multiple of
        `size`."""
        length = total // self.size
        return slice(self.rank * length, (self.rank + 1) * length)

    def to_heads(self, *parts_tnd: Tensor) -> Iterator[Tensor]:
        """Yield queries, keys and values for all tokens [T, m, d] from its own [t, n, d]."""
        count = parts_tnd[0].shape[1]
        parts: list[Tensor] = []
        for part_tnd in parts_tnd:
            copies = copies_of_heads(part_tnd.shape[1], queries=count, size=self.size)
            if copies > 1:
                part_tnd = part_tnd.repeat_interleave(copies, dim=1)
            parts.append(part_tnd.unflatten(1, (self.size, -1)))
        widths = [part.shape[2] for part in parts]
        whole_Tmd = self._exchanged(torch.cat(parts, dim=2).transpose(0, 1)).flatten(0, 1)
        yield from whole_Tmd.split(widths, dim=1)

    def to_tokens(self, output_Tmd: Tensor) -> Tensor:
        """Return attention's output for its own tokens [t, n, d]."""
        by_process = output_Tmd.unflatten(0, (self.size, -1))
        return self._exchanged(by_process).transpose(0, 1).flatten(1, 2)

    def _exchanged(self, tensor: Tensor) -> Tensor:
        """Send entry i in the first dimension to process i. Return what they sent, by process."""
        return all_to_all_single_autograd(tensor.contiguous(), None, None, self.group)


def copies_of_heads(heads: int, *, queries: int, size: int) -> int:
    """Return how often each key and value is repeated, at least, so that `size` processes get as
    many, each with the queries that read them. `size` divides `queries`."""
    return next(
        copies
        for copies in range(1, queries // heads + 1)
        if heads * copies % size == 0 and queries % (heads * copies) == 0
    )


def config_problem(config: Any, size: int) -> str:
    """Return the reason why `size` processes cannot share sequences where the model has this
    transformers config. "" if they can."""
    for layer in layer_configs(config.get_text_config()):
        heads = getattr(layer, "num_attention_heads", None)
        if not heads or heads % size:
            return (
                f"does not divide the {heads} attention heads of this model: give a divisor of"
                f" {heads}"
            )
        kinds = sorted(_MEASURING_ROPE & _rope_types(getattr(layer, "rope_parameters", None)))
        if kinds:
            return (
                f"needs angles that depend on a token's position alone, and this model's"
                f" (rope_type {kinds[0]}) depend on the length of the row as well: leave it out"
            )
    return ""


def _rope_types(rope: Any) -> set[str]:
    """Return the kinds in a config's `rope_parameters`, which may have an entry per layer type."""
    if not isinstance(rope, dict):
        return set()
    types = {str(rope["rope_type"])} if "rope_type" in rope else set[str]()
    return types.union(*map(_rope_types, rope.values()))
