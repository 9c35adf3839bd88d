"""Checks on a typed configuration that need no file, model or device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from rmrl.config.check_reward import reward_problems
from rmrl.config.plain_checks import field_problems
from rmrl.config.schema import Config, KLControlConfig
from rmrl.config.schema.algorithm import RolloutCorrectionConfig
from rmrl.registry import did_you_mean

_SAVED = ("model", "optimizer", "extra", "hf_model")


def config_problems(config: Config) -> list[str]:
    """Return all problems as full sentences, empty when there are none."""
    return list(chain.from_iterable(check(config) for check in _CHECKS))


def _data(config: Config) -> Iterator[str]:
    if not config.data.train_files and not config.trainer.val_only:
        yield (
            "data.train_files is empty: give a parquet, jsonl or csv file, e.g."
            " data.train_files=data/gsm8k/train.parquet"
        )
    if config.trainer.val_only and not config.data.val_files:
        yield "trainer.val_only=True without data.val_files: give the rows to validate on"
    if config.trainer.test_freq > 0 and not config.data.val_files:
        yield (
            f"trainer.test_freq={config.trainer.test_freq} without data.val_files: give the rows to"
            " validate on, or test_freq=-1"
        )


def _policy(config: Config) -> Iterator[str]:
    if not config.actor_rollout_ref.model.path:
        yield (
            "actor_rollout_ref.model.path is empty: give the policy's folder or hub id, e.g."
            " Qwen/Qwen2.5-0.5B-Instruct"
        )
    if config.trainer.resume_mode == "resume_path" and not config.trainer.resume_from_path:
        yield (
            "trainer.resume_mode=resume_path needs trainer.resume_from_path=<folder of a"
            " checkpoint>"
        )
    rollout = config.actor_rollout_ref.rollout
    if rollout.do_sample and rollout.temperature == 0:
        yield (
            "actor_rollout_ref.rollout.temperature=0 samples the same response every time; use a"
            " temperature above 0"
        )
    limit = config.data.max_prompt_length + config.data.max_response_length
    if rollout.max_model_len is not None and rollout.max_model_len < limit:
        yield (
            f"actor_rollout_ref.rollout.max_model_len={rollout.max_model_len} is less than"
            f" data.max_prompt_length + data.max_response_length = {limit}; leave it out or give at"
            f" least {limit}"
        )


def _batches(config: Config) -> Iterator[str]:
    data = config.data
    for key, trained in (
        ("actor_rollout_ref.actor", config.actor_rollout_ref.actor),
        ("critic", config.critic),
    ):
        if (trained.ppo_mini_batch_size or 0) > data.train_batch_size:
            yield (
                f"{key}.ppo_mini_batch_size={trained.ppo_mini_batch_size} is larger than"
                f" data.train_batch_size={data.train_batch_size}; both count prompts: give at most"
                f" {data.train_batch_size}"
            )
        if not trained.use_dynamic_bsz and trained.ppo_micro_batch_size_per_gpu is None:
            yield (
                f"{key}.use_dynamic_bsz=False needs {key}.ppo_micro_batch_size_per_gpu=<responses"
                " per forward pass>"
            )
    rounds = data.gen_batch_size
    if rounds is not None and (rounds < 1 or not config.algorithm.filter_groups.enable):
        yield (
            f"data.gen_batch_size={rounds} is the number of prompts in a round of dynamic sampling:"
            " give at least 1, with algorithm.filter_groups.enable=True, or leave it out"
        )


def _checkpoints(config: Config) -> Iterator[str]:
    """What checkpoints hold."""
    for key, trained in (
        ("actor_rollout_ref.actor", config.actor_rollout_ref.actor),
        ("critic", config.critic),
    ):
        for name in trained.checkpoint.save_contents:
            if name not in _SAVED:
                yield (
                    f"{key}.checkpoint.save_contents: no part named"
                    f" '{name}'{did_you_mean(name, _SAVED)}"
                )


def _corrections(config: Config) -> Iterator[str]:
    return correction_problems(config.algorithm.rollout_correction)


def correction_problems(correction: RolloutCorrectionConfig) -> Iterator[str]:
    """Yield a sentence for bounds that leave nothing, and for a rejection by ratios that are 1."""
    smallest = correction.rollout_is_threshold_lower
    if smallest is not None and smallest > correction.rollout_is_threshold > 0:
        yield (
            f"algorithm.rollout_correction.rollout_is_threshold_lower={smallest:g} is above"
            f" rollout_is_threshold={correction.rollout_is_threshold:g}; give a smaller lower"
            " bound, e.g. 0.5"
        )
    if correction.rollout_rs is None:
        return
    if correction.bypass_mode:
        yield (
            "algorithm.rollout_correction.bypass_mode=True with"
            f" rollout_rs={correction.rollout_rs}:"
            " pi_old is pi_rollout then and nothing would be rejected; leave one of the two out"
        )
    high = correction.rollout_rs_threshold
    low = correction.rollout_rs_threshold_lower
    if high <= 0:
        return
    text = "" if low is None else f"{low:g}"
    if low is None:
        low = 1 / high
        text = f"{low:g} (1 / rollout_rs_threshold)"
    if low > high:
        yield (
            f"algorithm.rollout_correction.rollout_rs_threshold_lower={text} is above"
            f" rollout_rs_threshold={high:g}: everything would be rejected; ratios of probabilities"
            " lie around 1, e.g. rollout_rs_threshold=2.0"
        )


def _policy_loss(config: Config) -> Iterator[str]:
    """FIPO's weight bounds, and a KL term to weigh."""
    actor = config.actor_rollout_ref.actor
    choice = actor.policy_loss
    if choice.loss_mode == "fipo" and choice.fipo_weight_low > choice.fipo_weight_high:
        yield (
            "actor_rollout_ref.actor.policy_loss.fipo_weight_low="
            f"{choice.fipo_weight_low:g} is above fipo_weight_high={choice.fipo_weight_high:g}; use"
            " e.g. fipo_weight_low=1.0 fipo_weight_high=1.2"
        )
    if actor.ratio_weighted_kl and not actor.use_kl_loss:
        yield (
            "actor_rollout_ref.actor.ratio_weighted_kl=True without use_kl_loss: there is no KL"
            " term to weigh; add actor_rollout_ref.actor.use_kl_loss=True"
        )


def _kl_control(config: Config) -> Iterator[str]:
    return kl_control_problems(config.algorithm.kl_ctrl)


def kl_control_problems(control: KLControlConfig) -> Iterator[str]:
    """Yield a sentence for an adaptive controller, which multiplies its coefficient, without
    one."""
    if control.type == "adaptive" and control.kl_coef == 0:
        yield (
            "algorithm.kl_ctrl.kl_coef=0.0: type=adaptive needs a value above 0; use"
            f" kl_coef={KLControlConfig().kl_coef}, or type=fixed"
        )


def _placement(config: Config) -> Iterator[str]:
    """Rollout's and critic's device pools, and settings that need a pool."""
    rollout = config.actor_rollout_ref.rollout
    trainer = config.trainer
    for key, pool in (
        ("actor_rollout_ref.rollout.pool", rollout.pool),
        ("critic.pool", config.critic.pool),
    ):
        if pool is not None and pool not in trainer.resource_pools:
            names = ", ".join(trainer.resource_pools) or "none"
            yield (
                f"{key}={pool}: no such pool (known: {names}); add"
                f" trainer.resource_pools.{pool}.n_gpus_per_node=<devices>"
            )
    if rollout.pool is None and not config.actor_rollout_ref.hybrid_engine:
        yield (
            "actor_rollout_ref.hybrid_engine=False samples on devices of its own: name them, e.g."
            " actor_rollout_ref.rollout.pool=rollout"
            " trainer.resource_pools.rollout.n_gpus_per_node=1"
        )
    if rollout.pool is None and trainer.max_staleness > 0:
        yield (
            f"trainer.max_staleness={trainer.max_staleness} samples while the policy trains, so it"
            " needs devices of its own: e.g. actor_rollout_ref.rollout.pool=rollout"
            " trainer.resource_pools.rollout.n_gpus_per_node=1, or max_staleness=0"
        )


def _profile(config: Config) -> Iterator[str]:
    steps = config.trainer.profile_steps or []
    if any(step < 1 for step in steps):
        yield (
            f"trainer.profile_steps={steps}: give numbers of steps, the first one is 1, e.g."
            " trainer.profile_steps=[3]"
        )


_CHECKS: Sequence[Callable[[Config], Iterable[str]]] = (
    field_problems,
    _data,
    _policy,
    _batches,
    _checkpoints,
    _corrections,
    _policy_loss,
    _kl_control,
    _placement,
    reward_problems,
    _profile,
)
