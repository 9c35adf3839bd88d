"""Section `algorithm`: from rewards to advantages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class KLControlConfig:
    type: str = "fixed"
    """fixed or adaptive (arXiv:1909.08593, section 2.2)."""
    kl_coef: float = 0.001
    """Coefficient of the KL penalty in reward."""
    horizon: int = 10000
    """Adaptive: how slowly the coefficient moves, in responses."""
    target_kl: float = 0.1
    """Adaptive: the KL to hold."""


@dataclass(kw_only=True, slots=True)
class AlgorithmConfig:
    adv_estimator: str = "grpo"
    """Name in the table ADVANTAGES, or package.module:function."""
    gamma: float = 1.0
    """Discount."""
    norm_adv_by_std_in_grpo: bool = True
    """Divide by the group's standard deviation (off: Dr. GRPO)."""
    use_kl_in_reward: bool = False
    """Subtract kl_coef * KL(old policy || reference) from the token rewards."""
    kl_penalty: str = "kl"
    """Estimator of that KL: kl (k1), abs, mse (k2), low_var_kl (k3)."""
    kl_ctrl: KLControlConfig = field(default_factory=KLControlConfig)
