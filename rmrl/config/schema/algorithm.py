"""Section `algorithm`: from rewards to advantages."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.config.schema.fields import choice, not_negative, positive, share

KL_ESTIMATORS = ("kl", "abs", "mse", "low_var_kl", "k1", "k2", "k3")
"""Estimators of the KL divergence from samples; `rmrl.algorithms.kl` has the formulas."""


@dataclass(kw_only=True, slots=True)
class KLControlConfig:
    type: str = choice("fixed", among=("fixed", "adaptive"))
    """fixed or adaptive (arXiv:1909.08593, section 2.2)."""
    kl_coef: float = not_negative(0.001)
    """Coefficient of the KL penalty in reward; adaptive: the first one, above 0."""
    horizon: int = 10000
    """Adaptive: how slowly the coefficient moves, in responses; a step with more of them counts as
    this many."""
    target_kl: float = 0.1
    """Adaptive: the KL to hold."""


@dataclass(kw_only=True, slots=True)
class FilterGroupsConfig:
    """DAPO's dynamic sampling (arXiv:2503.14476, section 3.2): groups without contrast are left out
    and others sampled in their place."""

    enable: bool = False
    """Sample on until train_batch_size prompts have contrast."""
    metric: str | None = None
    """What must differ within a group: a component's name; null or reward: the combined reward,
    scores of steps included; score: the weighted sum of the scores before their transforms
    (overlong shaping is one); acc: what a rule returned as acc beside its score, else as score."""
    max_num_gen_batches: int = not_negative(10)
    """Rounds of sampling per step, at most; then the step trains on what there is. 0: no bound."""


@dataclass(kw_only=True, slots=True)
class PFPPOConfig:
    """PF-PPO (arXiv:2409.06957): responses are drawn anew, with replacement, by how reliable their
    rewards are taken to be."""

    reweight_method: str = choice("pow", among=("pow", "max_min", "max_random"))
    """pow: by abs(reward) to the power of weight_pow; max_min: each group's best and worst;
    max_random: its best, others at random. The reward holds the scores of a response's steps."""
    weight_pow: float = not_negative(2.0)
    """Exponent of pow."""


@dataclass(kw_only=True, slots=True)
class RolloutCorrectionConfig:
    """Corrects for sampling probabilities that are not those of training: pi_old / pi_rollout, from
    the rollout engine's logprobs."""

    rollout_is: str | None = choice(None, among=(None, "token", "sequence"))
    """Truncated importance weights: token or sequence; null: none."""
    rollout_is_threshold: float = positive(2.0)
    """Largest weight."""
    rollout_is_batch_normalize: bool = False
    """Divide the weights by their mean over the batch."""
    rollout_rs: str | None = choice(None, among=(None, "token", "sequence", "geometric"))
    """Rejection from the losses: token, sequence (product of ratios) or geometric (its geometric
    mean); null: none."""
    rollout_rs_threshold: float = positive(2.0)
    """Reject where the ratio lies above this."""
    rollout_rs_threshold_lower: float | None = None
    """Reject where it lies below this; null: 1 / rollout_rs_threshold."""
    bypass_mode: bool = False
    """Take the rollout engine's logprobs for those of the old policy: no forward pass for them, and
    the clip is around pi_rollout."""


@dataclass(kw_only=True, slots=True)
class AlgorithmConfig:
    adv_estimator: str = "gae"
    """Name in the table ADVANTAGES, or package.module:function."""
    gamma: float = share(1.0)
    """Discount."""
    lam: float = share(1.0)
    """gae: lambda, 0..1."""
    passk_k: int | None = None
    """grpo_passk: responses of a group of which the best one counts; null: all of them."""
    norm_adv_by_std_in_grpo: bool = True
    """Divide by the group's standard deviation (off: Dr. GRPO)."""
    use_kl_in_reward: bool = False
    """Subtract kl_coef * KL(old policy || reference) from the token rewards."""
    kl_penalty: str = choice("kl", among=KL_ESTIMATORS)
    """Estimator of that KL: kl (k1), abs, mse (k2), low_var_kl (k3)."""
    kl_ctrl: KLControlConfig = field(default_factory=KLControlConfig)
    filter_groups: FilterGroupsConfig = field(default_factory=FilterGroupsConfig)
    use_pf_ppo: bool = False
    """Draw the responses that train anew, weighted by their rewards."""
    pf_ppo: PFPPOConfig = field(default_factory=PFPPOConfig)
    rollout_correction: RolloutCorrectionConfig = field(default_factory=RolloutCorrectionConfig)
