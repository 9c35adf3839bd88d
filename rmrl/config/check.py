"""Finds every problem of a typed configuration that can be found without opening a file, a model or a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rmrl.config.check_reward import reward_problems
from rmrl.config.plain_checks import choice_problems, look_up, number_problems
from rmrl.config.schema import Config

GROUP_ESTIMATORS = ("grpo", "rloo", "reinforce_plus_plus_baseline", "opo")

_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("data.truncation", ("error", "left", "right", "middle")),
    ("actor_rollout_ref.actor.strategy", ("fsdp", "fsdp2", "fake")),
    ("actor_rollout_ref.actor.loss_agg_mode", ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")),
    ("actor_rollout_ref.actor.kl_loss_type", ("kl", "abs", "mse", "low_var_kl", "k1", "k2", "k3")),
    ("actor_rollout_ref.actor.optim.lr_scheduler_type", ("constant", "linear", "cosine")),
    ("actor_rollout_ref.rollout.dtype", ("bfloat16", "float16", "float32")),
    ("algorithm.kl_penalty", ("kl", "abs", "mse", "low_var_kl", "k1", "k2", "k3")),
    ("algorithm.kl_ctrl.type", ("fixed", "adaptive")),
    ("trainer.device", ("auto", "cuda", "cpu")),
    ("trainer.resume_mode", ("auto", "disable", "resume_path")),
)
_EXPLAINED = (("actor_rollout_ref.actor.strategy", "megatron"),)
"""Values that a check below refuses with a sentence of its own."""
_POSITIVE = (
    "data.max_prompt_length", "data.max_response_length", "data.train_batch_size", "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.actor.ppo_epochs",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "actor_rollout_ref.actor.grad_clip", "trainer.nnodes", "trainer.n_gpus_per_node", "trainer.total_epochs",
    "actor_rollout_ref.rollout.max_num_seqs", "trainer.stall_timeout_s",
    "actor_rollout_ref.rollout.tensor_parallel_size", "actor_rollout_ref.rollout.data_parallel_size",
    "actor_rollout_ref.rollout.timeout_s",
)  # fmt: skip
_AT_LEAST_ZERO = (
    "actor_rollout_ref.actor.optim.lr", "actor_rollout_ref.rollout.temperature", "actor_rollout_ref.actor.kl_loss_coef",
    "algorithm.kl_ctrl.kl_coef", "actor_rollout_ref.actor.clip_ratio",
)  # fmt: skip


def config_problems(config: Config) -> list[str]:
    """All problems as full sentences; empty when there are none."""
    checks: Sequence[Callable[[Config], Iterable[str]]] = (_choices, _numbers, _data, _policy, _batches, _group, reward_problems, _backend)
    return [problem for check in checks for problem in check(config)]


def _choices(config: Config) -> Iterator[str]:
    yield from choice_problems(config, [(key, allowed) for key, allowed in _CHOICES if (key, look_up(config, key)) not in _EXPLAINED])


def _numbers(config: Config) -> Iterator[str]:
    yield from number_problems(config, positive=_POSITIVE, at_least_zero=_AT_LEAST_ZERO)


def _data(config: Config) -> Iterator[str]:
    if not config.data.train_files and not config.trainer.val_only:
        yield "data.train_files is empty: give a parquet or jsonl file, e.g. data.train_files=data/gsm8k/train.parquet"
    if config.trainer.val_only and not config.data.val_files:
        yield "trainer.val_only=True without data.val_files: give the rows to validate on"
    if config.trainer.test_freq > 0 and not config.data.val_files:
        yield f"trainer.test_freq={config.trainer.test_freq} without data.val_files: give the rows to validate on, or test_freq=-1"


def _policy(config: Config) -> Iterator[str]:
    if not config.actor_rollout_ref.model.path:
        yield "actor_rollout_ref.model.path is empty: give the policy's folder or hub id, e.g. Qwen/Qwen2.5-0.5B-Instruct"
    if not config.actor_rollout_ref.hybrid_engine:
        yield "actor_rollout_ref.hybrid_engine=False: rollout and training always share the devices here; leave it out"
    if config.trainer.resume_mode == "resume_path" and not config.trainer.resume_from_path:
        yield "trainer.resume_mode=resume_path needs trainer.resume_from_path=<folder of a checkpoint>"
    rollout = config.actor_rollout_ref.rollout
    if rollout.do_sample and rollout.temperature == 0:
        yield "actor_rollout_ref.rollout.temperature=0 samples the same response every time; use a temperature above 0"
    limit = config.data.max_prompt_length + config.data.max_response_length
    if rollout.max_model_len is not None and rollout.max_model_len < limit:
        yield (
            f"actor_rollout_ref.rollout.max_model_len={rollout.max_model_len} is less than data.max_prompt_length + "
            f"data.max_response_length = {limit}; leave it out or give at least {limit}"
        )


def _batches(config: Config) -> Iterator[str]:
    actor, data = config.actor_rollout_ref.actor, config.data
    if actor.ppo_mini_batch_size > data.train_batch_size:
        yield (
            f"actor_rollout_ref.actor.ppo_mini_batch_size={actor.ppo_mini_batch_size} is larger than data.train_batch_size="
            f"{data.train_batch_size}; both count prompts: give at most {data.train_batch_size}"
        )
    if not actor.use_dynamic_bsz and actor.ppo_micro_batch_size_per_gpu is None:
        yield "actor_rollout_ref.actor.use_dynamic_bsz=False needs actor.ppo_micro_batch_size_per_gpu=<responses per forward pass>"


def _group(config: Config) -> Iterator[str]:
    estimator, n = config.algorithm.adv_estimator, config.actor_rollout_ref.rollout.n
    if estimator in GROUP_ESTIMATORS and n < 2 and not config.trainer.val_only:
        yield (
            f"actor_rollout_ref.rollout.n={n} with algorithm.adv_estimator={estimator}: every advantage would be 0; "
            "use n >= 2 or adv_estimator=reinforce_plus_plus"
        )
    if estimator == "gae":
        yield "algorithm.adv_estimator=gae needs a critic, which is not trained yet; use grpo, rloo or reinforce_plus_plus"


def _backend(config: Config) -> Iterator[str]:
    if config.actor_rollout_ref.actor.strategy == "megatron":
        yield "actor_rollout_ref.actor.strategy=megatron is not part of this version; use fsdp2"
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    tensor_parallel = config.actor_rollout_ref.rollout.tensor_parallel_size
    if config.trainer.device == "cuda" and devices % tensor_parallel:
        yield f"actor_rollout_ref.rollout.tensor_parallel_size={tensor_parallel} does not divide the {devices} devices of trainer"
