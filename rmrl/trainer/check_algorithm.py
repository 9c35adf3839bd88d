"""Problems of the estimator, the critic, the filters and the rewards of a run as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmrl.algorithms import Advantages, Estimator, estimator_named
from rmrl.config.schema import Config, CriticConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean
from rmrl.rewards.combine.steps import rates_tokens, to_tokens
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms.chain import compared

BEFORE_TRANSFORMS = ("score", "acc")
"""Values of algorithm.filter_groups.metric computed from scores before their transforms."""


def algorithm_problems(config: Config, specs: list[RewardSpec]) -> Iterator[str]:
    """Yield a sentence for every combination that cannot train."""
    yield from _estimator_problems(config, specs)
    yield from _group_problems(config, specs)
    weights: list[float] = []
    for spec in specs:
        if not spec.part_of and spec.sources is None:
            weights.append(spec.weight)
        elif not spec.part_of:
            return
    if weights and not any(weights) and not config.reward.weight_schedules:
        yield (
            f"reward.weights={weights}: all are 0, so no response differs from another; give at"
            " least one weight above 0"
        )


def estimator_of(config: Config) -> Estimator:
    """Return the descriptor of algorithm.adv_estimator. One without requirements where there is no
    such estimator, which is reported with the other unknown names."""
    try:
        return estimator_named(config.algorithm.adv_estimator)
    except (ConfigError, ImportError, AttributeError):
        return Estimator(fn=_missing, values=None)


def _missing(*_: object, **__: object) -> Advantages:
    raise AssertionError("an unknown estimator was called")


def needs_reference(config: Config) -> bool:
    """Return whether a KL term compares the policy with its start."""
    return config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward


def needs_critic(config: Config) -> bool:
    """Return critic.enable, else whether the estimator needs values. Nothing is trained where the
    run only validates."""
    if config.trainer.val_only:
        return False
    if config.critic.enable is not None:
        return config.critic.enable
    return bool(estimator_of(config).values)


def needs_old_logprobs(config: Config) -> bool:
    """Return whether they are computed before the update, whatever the estimator reads: a single
    update on fresh samples computes them in its own forward pass."""
    actor = config.actor_rollout_ref.actor
    algorithm = config.algorithm
    one_batch = actor.ppo_mini_batch_size >= config.data.train_batch_size
    if actor.ppo_epochs != 1 or not one_batch or algorithm.use_kl_in_reward:
        return True
    correction = algorithm.rollout_correction
    return correction.rollout_is is not None or correction.rollout_rs is not None


def critic_settings(config: Config) -> CriticConfig:
    """Return section `critic` with every null replaced by the actor's setting."""
    critic = config.critic
    actor = config.actor_rollout_ref.actor
    policy = config.actor_rollout_ref.model
    trust = critic.model.trust_remote_code or policy.trust_remote_code
    return replace(
        critic,
        model=replace(
            critic.model,
            path=critic.model.path or policy.path,
            tokenizer_path=critic.model.tokenizer_path or policy.tokenizer_path or policy.path,
            trust_remote_code=trust,
        ),
        strategy=critic.strategy or actor.strategy,
        megatron=critic.megatron.over(actor.megatron),
        ppo_mini_batch_size=critic.ppo_mini_batch_size or actor.ppo_mini_batch_size,
        ppo_epochs=critic.ppo_epochs or actor.ppo_epochs,
    )


def _estimator_problems(config: Config, specs: list[RewardSpec]) -> Iterator[str]:
    """Yield what the advantage estimator needs and lacks, or does not support."""
    if config.trainer.val_only:
        return
    name = config.algorithm.adv_estimator
    estimator = estimator_of(config)
    n = config.actor_rollout_ref.rollout.n
    filters = config.algorithm.filter_groups.enable
    if n < 2 and (estimator.group or filters):
        setting = "algorithm.filter_groups.enable=True"
        if estimator.group:
            setting = f"algorithm.adv_estimator={name}"
        effect = "no group has contrast" if filters else "every advantage would be 0"
        yield (
            f"actor_rollout_ref.rollout.n={n} with {setting}: {effect}; use n >= 2 or"
            " adv_estimator=reinforce_plus_plus"
        )
    if estimator.energies and config.algorithm.rollout_correction.bypass_mode:
        yield (
            f"algorithm.adv_estimator={name} reads the energies of tokens, which the training"
            " engine computes with its log-probabilities, and"
            " algorithm.rollout_correction.bypass_mode=True takes those of the rollout engine; set"
            " bypass_mode=False, or use adv_estimator=opo"
        )
    weighted: list[RewardSpec] = []
    for spec in specs:
        scheduled = spec.name in config.reward.weight_schedules
        if spec.weight != 0 or spec.sources is not None or scheduled or spec.part_of:
            weighted.append(spec)
    if n < 2 and estimator.group_beside_tokens:
        for spec in weighted:
            if not spec.part_of and not to_tokens(spec):
                yield (
                    f"actor_rollout_ref.rollout.n={n} with algorithm.adv_estimator={name}: reward"
                    f" '{spec.name}' would have no effect, as {name} compares its scores of the"
                    " responses to one prompt; use n >= 2, or give it weight 0 to watch it alone"
                )
    yield from estimator.problems(config.algorithm)
    yield from _critic_problems(config, estimator)
    if not estimator.token_rewards:
        sources: list[str] = []
        for spec in weighted:
            if REWARD_KINDS[spec.kind].scores_steps:
                sources.append(f"the step scores of reward '{spec.name}'")
            if rates_tokens(spec):
                sources.append(f"the token rewards of teacher '{spec.name}'")
        if config.algorithm.use_kl_in_reward:
            sources.append("algorithm.use_kl_in_reward=True")
        if sources:
            yield (
                f"algorithm.adv_estimator={name} looks at whole responses and cannot take"
                f" {sources[0]}; use gae or reinforce_plus_plus"
            )


def _critic_problems(config: Config, estimator: Estimator) -> Iterator[str]:
    """Yield settings under which a critic exists and its values are not read, or the reverse."""
    name = config.algorithm.adv_estimator
    warmup = config.trainer.critic_warmup
    if estimator.values and config.critic.enable is False:
        yield (
            f"algorithm.adv_estimator={name} needs a critic and critic.enable=False; leave it"
            " out, or use adv_estimator=grpo"
        )
    if config.critic.enable and estimator.values is False:
        yield (
            f"critic.enable=True with algorithm.adv_estimator={name}, which reads no values;"
            " leave it out, or use adv_estimator=gae"
        )
    if warmup > 0 and not needs_critic(config):
        yield (
            f"trainer.critic_warmup={warmup} without a critic: nothing would learn in these steps;"
            " leave it out"
        )


def _group_problems(config: Config, specs: list[RewardSpec]) -> Iterator[str]:
    """Yield rewards that compare the responses to a prompt where there is only one, and an unknown
    metric of dynamic sampling."""
    filters = config.algorithm.filter_groups
    own = [spec for spec in specs if not spec.part_of]
    if filters.enable and own and all(map(rates_tokens, own)):
        yield (
            "algorithm.filter_groups.enable=True with teachers alone: what a teacher says of tokens"
            " makes no contrast between responses, so no group would ever train; leave it out"
        )
    metrics = ["reward", *BEFORE_TRANSFORMS]
    for spec in specs:
        if not spec.part_of:
            metrics.append(spec.name)
    if filters.enable and filters.metric is not None and filters.metric not in metrics:
        yield (
            f"algorithm.filter_groups.metric={filters.metric}: no reward of that"
            f" name{did_you_mean(filters.metric, metrics)}"
        )
    baseline = estimator_of(config).baseline
    if config.trainer.val_only or (config.actor_rollout_ref.rollout.n > 1 and not baseline):
        return
    need = "compares the responses to one prompt, and actor_rollout_ref.rollout.n=1: use n >= 2"
    if baseline:
        name = config.algorithm.adv_estimator
        need = (
            f"compares responses with each other, and algorithm.adv_estimator={name} scores"
            " the greedy one alone: use rloo or grpo"
        )
    by = {"group", "batch"} if baseline else {"group"}
    for spec in specs:
        whole_groups = REWARD_KINDS[spec.kind].whole_groups
        if whole_groups or compared(spec.transforms) & by:
            yield f"reward '{spec.name}' {need}"
    if config.reward.combine == "lexicographic":
        yield f"reward.combine=lexicographic {need}"
