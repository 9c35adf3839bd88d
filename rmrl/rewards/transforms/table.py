"""The kinds of transform."""

from __future__ import annotations

from typing import Any

from rmrl.registry import Registry

TRANSFORMS: Registry[Any] = Registry(
    "transform kind",
    {
        "scale": "rmrl.rewards.transforms.scale:Scale",
        "clip": "rmrl.rewards.transforms.clip:Clip",
        "sigmoid": "rmrl.rewards.transforms.sigmoid:Sigmoid",
        "piecewise": "rmrl.rewards.transforms.piecewise:Piecewise",
        "calibrated": "rmrl.rewards.transforms.calibrated:Calibrated",
        "rank": "rmrl.rewards.transforms.rank:Rank",
        "standardize": "rmrl.rewards.transforms.standardize:Standardize",
        "overlong": "rmrl.rewards.transforms.overlong:Overlong",
        "length": "rmrl.rewards.transforms.length:LengthPenalty",
        "length_residual": "rmrl.rewards.transforms.length_residual:LengthResidual",
        "cosine_length": "rmrl.rewards.transforms.cosine_length:CosineLength",
    },
)
