"""Transforms of one component's scores before their weight: table TRANSFORMS, and chains of several
in order.

To add a transform: one file with a dataclass whose fields are its entries (see `chain.Transform`),
and one line in `table`.
"""

from __future__ import annotations

from rmrl.rewards.transforms.chain import Chain, chain_of, parse_transforms
from rmrl.rewards.transforms.table import TRANSFORMS

__all__ = ["TRANSFORMS", "Chain", "chain_of", "parse_transforms"]
