"""Section `algorithm`: how advantages come from rewards."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.config.schema.fields import choice, not_negative, positive, share

KL_ESTIMATORS = ("kl", "abs", "mse", "low_var_kl", "k1", "k2", "k3")
"""Estimators that compute the KL divergence from samples. `rmrl.algorithms.kl` has the formulas."""


@dataclass(kw_only=True, slots=True)
class KLControlConfig:
    type: str = choice("fixed", among=("fixed", "adaptive"))
    """fixed or adaptive (arXiv:1909.08593, section 2.2)."""
    kl_coef: float = not_negative(0.001)
    """Coefficient of the KL penalty in reward. adaptive: the first coefficient, above 0."""
    horizon: int = positive(10000)
    """Adaptive: the coefficient's time constant, in responses. A step with more responses counts as
    this many."""
    target_kl: float = positive(0.1)
    """Adaptive: KL divergence to aim for."""


@dataclass(kw_only=True, slots=True)
class FilterGroupsConfig:
    """DAPO's dynamic sampling (arXiv:2503.14476, section 3.2): groups without contrast are replaced
    by newly sampled ones."""

    enable: bool = False
    """Sample until train_batch_size prompts have contrast."""
    metric: str | None = None
    """Quantity that must differ within a group. A component's name: that component's score. null or
    reward: the combined reward, step scores included. score: the weighted sum of the scores before
    their transforms (such as overlong shaping). acc: the entry acc that a rule returned beside its
    score, else the rule's score."""
    max_num_gen_batches: int = not_negative(10)
    """Largest number of sampling rounds per step. After the last round the step trains on the
    groups that it has. 0: no bound."""


@dataclass(kw_only=True, slots=True)
class PFPPOConfig:
    """PF-PPO (arXiv:2409.06957): responses are resampled, with replacement, by how reliable their
    rewards are assumed to be."""

    reweight_method: str = choice("pow", among=("pow", "max_min", "max_random"))
    """pow: by abs(reward) ** weight_pow. max_min: the best and the worst response in each group.
    max_random: the group's best response, others at random. The reward includes a response's step
    scores."""
    weight_pow: float = not_negative(2.0)
    """Exponent of pow."""


@dataclass(kw_only=True, slots=True)
class RolloutCorrectionConfig:
    """Correction for the difference between sampling and training probabilities: pi_old /
    pi_rollout, from the rollout engine's logprobs."""

    rollout_is: str | None = choice(None, among=(None, "token", "sequence"))
    """Truncated importance weights: token or sequence. null: none."""
    rollout_is_threshold: float = positive(2.0)
    """Largest weight."""
    rollout_is_threshold_lower: float | None = not_negative(None)
    """Smallest weight. null: no lower bound."""
    rollout_is_outside: str = choice("clamp", among=("clamp", "zero"))
    """Weight of a ratio outside the thresholds. clamp: the threshold. zero: none, and the token
    still counts in loss_agg_mode's divisor (IcePop)."""
    rollout_is_batch_normalize: bool = False
    """Divide the weights by their mean over the batch."""
    rollout_rs: str | None = choice(None, among=(None, "token", "sequence", "geometric"))
    """Reject responses or tokens from the losses by token, sequence (product of ratios) or
    geometric (geometric mean of the ratios). null: reject nothing."""
    rollout_rs_threshold: float = positive(2.0)
    """Reject where the ratio lies above this."""
    rollout_rs_threshold_lower: float | None = not_negative(None)
    """Reject where the ratio lies below this. null: 1 / rollout_rs_threshold."""
    bypass_mode: bool = False
    """Use the rollout engine's logprobs as the old policy's logprobs. The old policy needs no
    forward pass, and the clip is around pi_rollout."""


@dataclass(kw_only=True, slots=True)
class AlgorithmConfig:
    adv_estimator: str = "gae"
    """Name in the table ADVANTAGES, or package.module:function."""
    gamma: float = share(1.0)
    """Discount."""
    lam: float = share(1.0)
    """gae: lambda, 0..1."""
    lam_critic: float | None = share(None)
    """gae: lambda for the critic's targets (VAPO: 1.0). null: lam."""
    lam_length_alpha: float | None = positive(None)
    """gae: the policy's lambda is 1 - 1 / (lam_length_alpha * response tokens), at least 0 (VAPO:
    0.05). null: lam."""
    positive_nll_coef: float = not_negative(0.0)
    """Add this times the negative log-likelihood of successful responses, averaged by loss_agg_mode
    over these responses alone (VAPO: 0.1). A response is successful where its reward lies above
    positive_nll_threshold."""
    positive_nll_threshold: float = 0.0
    """Rewards above this are successes for positive_nll_coef."""
    mask_truncated_completions: bool = False
    """Leave responses that were cut off at data.max_response_length out of every loss. Their
    rewards still count in their groups."""
    passk_k: int | None = positive(None)
    """grpo_passk: number of responses from which the best one counts. null: the whole group."""
    norm_adv_by_std_in_grpo: bool = True
    """Divide by the group's standard deviation (off: Dr. GRPO)."""
    scale_rewards: str | None = choice(None, among=(None, "group", "batch", "none"))
    """grpo: standard deviation to divide by: group (the group's rewards), batch (all rewards in the
    batch) or none. null: group where norm_adv_by_std_in_grpo, else none."""
    leave_one_out: bool = False
    """grpo: compare a response with the mean and the standard deviation of the other responses in
    its group."""
    use_kl_in_reward: bool = False
    """Subtract kl_coef * KL(old policy || reference) from the token rewards."""
    kl_penalty: str = choice("kl", among=KL_ESTIMATORS)
    """Estimator for that KL: kl (k1), abs, mse (k2), low_var_kl (k3)."""
    kl_ctrl: KLControlConfig = field(default_factory=KLControlConfig)
    filter_groups: FilterGroupsConfig = field(default_factory=FilterGroupsConfig)
    use_pf_ppo: bool = False
    """Resample the responses to train on, weighted by their rewards."""
    pf_ppo: PFPPOConfig = field(default_factory=PFPPOConfig)
    rollout_correction: RolloutCorrectionConfig = field(default_factory=RolloutCorrectionConfig)
