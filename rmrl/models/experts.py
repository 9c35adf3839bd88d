"""A mixture's experts under the names in checkpoint files: one by one, where transformers keeps
them fused.

<layer>.mlp.experts.gate_up_proj [E, 2 I, H]
    ->  <layer>.mlp.experts.<e>.gate_proj.weight [I, H], <layer>.mlp.experts.<e>.up_proj.weight
<layer>.mlp.experts.down_proj    [E, H, I]
    ->  <layer>.mlp.experts.<e>.down_proj.weight [H, I]
"""

from __future__ import annotations

from torch import Tensor

_FUSED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


def one_by_one(name: str, parameter: Tensor) -> dict[str, Tensor]:
    """Views into a fused parameter by its experts' names, {} for any other parameter."""
    holder, _, last = name.rpartition(".")
    if last not in _FUSED or not holder.endswith(".experts") or parameter.dim() != 3:
        return {}
    parts = _FUSED[last]
    views: dict[str, Tensor] = {}
    for number, expert in enumerate(parameter.detach()):
        for part, view in zip(parts, expert.chunk(len(parts)), strict=True):
            views[f"{holder}.{number}.{part}.weight"] = view
    return views
