"""All that can be wrong before a process is started: the configuration, the data, the model's head
and the folder. Knows no torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmrl.cluster.devices import cores, cpu_devices, local_devices
from rmrl.config.plain_checks import field_problems, folder_problems
from rmrl.config.schema import RewardTrainingConfig
from rmrl.errors import ConfigError, DataError, Problems
from rmrl.evaluation.eval_tables import aligned
from rmrl.inference.reward_engines import ENGINES
from rmrl.models.checkpoint_inspect import local_checkpoint, max_positions
from rmrl.reward_training.data_report import data_report, data_tables
from rmrl.reward_training.objectives import OBJECTIVES
from rmrl.reward_training.objectives.objective import Objective
from rmrl.reward_training.own_keys import own_keys
from rmrl.reward_training.read_examples import Split, split
from rmrl.reward_training.tokens import Tokenized, tokenized
from rmrl.rewards.specs.spec import WHOLE_PROMPT
from rmrl.telemetry.sinks import SINKS
from rmrl.tokenizer import policy_tokenizer
from rmrl.trainer.output_dir import refuse_other_run

_log = logging.getLogger(__name__)

_VALIDATIONS = 10
"""Validations of a run that does not say how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRewardTraining:
    """A configuration without known problems, with its data as tokens."""

    config: RewardTrainingConfig
    device: str
    processes: int
    threads: int
    total_steps: int
    test_freq: int
    objective: Objective
    split: Split
    train: Tokenized
    held_out: Tokenized
    data_numbers: dict[str, Any]
    out: Path
    base: Path
    """Folder of the base with an untrained head, where `needs_base`."""

    @property
    def tokens(self) -> int:
        """Most padded tokens in a micro-batch."""
        default = 4096 if self.device == "cpu" else 16384
        return self.config.trainer.max_tokens_per_gpu or default

    @property
    def prompt_entries(self) -> dict[str, str]:
        """The entry with which a reward reads all turns that are trained on."""
        examples = [*self.split.train, *self.split.held_out]
        if any(example.is_conversation for example in examples):
            return {"rm_prompt": WHOLE_PROMPT}
        return {}

    @property
    def needs_base(self) -> bool:
        """Whether adapters stand beside the base, or further seeds start from it."""
        return self.config.model.lora_rank > 0 or self.base.parent != self.out


@own_keys()
def check(config: RewardTrainingConfig) -> CheckedRewardTraining:
    """Find all problems, read the data and print its report.

    Raises ConfigError with every problem in the configuration, DataError for rows that cannot be
    read, OutputDirError for another run's folder.
    """
    problems = Problems()
    problems.add(field_problems(config))
    problems.add(settings_problems(config))
    if config.model.path:
        with problems.collecting():
            config = _fit_positions(config)
    devices = cpu_devices()
    with problems.collecting():
        devices = local_devices(config.trainer.device)
    problems.raise_any()
    assert config.out is not None
    out = Path(config.out).expanduser()
    refuse_other_run(out, config=config, resume_mode=config.trainer.resume_mode)
    processes = config.trainer.n_gpus_per_node
    if processes == -1:
        processes = max(devices.gpus_per_node(1), 1)
    kind = OBJECTIVES[config.objective]
    parts = split(config.data, among=kind.forms, seed=config.trainer.seed)
    objective = kind(config.loss, kind.outputs_of(parts.train, config.loss))
    data = _tokens(config, objective, parts)
    train: Tokenized = data["train"]
    _refuse_too_few(config, data, processes)
    steps = config.trainer.total_training_steps
    if steps is None:
        per_epoch = len(train.items) // config.data.train_batch_size
        steps = per_epoch * config.trainer.total_epochs
    test_freq = config.trainer.test_freq
    if test_freq < 1:
        test_freq = max(1, steps // _VALIDATIONS)
    return CheckedRewardTraining(
        config=config,
        device=devices.kind,
        processes=processes,
        threads=config.trainer.threads_per_process or max(1, cores() // processes),
        total_steps=steps,
        test_freq=test_freq,
        objective=objective,
        **data,
        out=out,
        base=out / "base",
    )


def with_split(checked: CheckedRewardTraining, parts: Split) -> CheckedRewardTraining:
    """Return the work with other examples, and print their report. Raises DataError where too few
    are left."""
    if not parts.train:
        raise DataError(
            f"no row is left of {parts.rows}: {parts.without_critique} have a response without a"
            " critique, for the reasons above; mostly loss.critic.sampling.max_tokens is too low"
        )
    data = _tokens(checked.config, checked.objective, parts)
    _refuse_too_few(checked.config, data, checked.processes)
    return replace(checked, **data)


def _tokens(config: RewardTrainingConfig, objective: Objective, parts: Split) -> dict[str, Any]:
    """`CheckedRewardTraining`'s fields that follow from the examples."""
    tokenizer = policy_tokenizer(config.model)
    if not tokenizer.chat_template:
        _log.warning(
            f"the tokenizer of {config.model.path} has no chat template, so nothing marks where a"
            " prompt ends and the response begins: give one with model.custom_chat_template=<file>"
        )
    train = tokenized(parts.train, tokenizer, objective, config.data)
    held_out = tokenized(parts.held_out, tokenizer, objective, config.data)
    numbers = data_report(parts, train, held_out, max_length=config.data.max_length)
    for table in data_tables(numbers):
        _log.info("\n" + aligned(table))
    return {"split": parts, "train": train, "held_out": held_out, "data_numbers": numbers}


def settings_problems(config: RewardTrainingConfig) -> Iterator[str]:
    """Report what is missing or unknown, one sentence each."""
    if not config.data.train_files:
        yield "data.train_files is empty: give rows with labels, e.g. data.train_files=pairs.jsonl"
    yield from folder_problems(config.out, "the run", example="rm")
    if not config.model.path:
        yield "model.path is empty: give the model to start from, e.g. model.path=Qwen/Qwen3-0.6B"
    unknown = OBJECTIVES.problems(config.objective, "objective")
    yield from unknown or OBJECTIVES[config.objective].problems(config)
    if config.seeds > 1 and config.merge == "ensemble" and not config.model.lora_rank:
        yield (
            f"seeds={config.seeds} trains adapters that share one base: give"
            " model.lora_rank=16, or make one model of all seeds with merge=average"
        )
    if config.seeds == 1 and config.merge == "average":
        yield "merge=average makes one model of several seeds: give e.g. seeds=4, or leave it out"
    critic = config.loss.critic
    if config.objective == "critique" and not (critic.get("path") or critic.get("server")):
        yield (
            "loss.critic names no model that writes the critiques: give e.g."
            " loss.critic.path=Qwen/Qwen3-4B"
        )
    if config.fsdp_config.ulysses_sequence_parallel_size > 1:
        yield (
            "fsdp_config.ulysses_sequence_parallel_size: rmrl train-rm reads each row whole: leave"
            " it at 1"
        )
    for name in config.gate.engines:
        yield from ENGINES.unknown(name, "gate.engines")
    for name in config.trainer.logger:
        yield from SINKS.problems(name, "trainer.logger")


def _fit_positions(config: RewardTrainingConfig) -> RewardTrainingConfig:
    """Return the configuration with a `data.max_length` that the model has positions for."""
    positions = max_positions(local_checkpoint(config.model.path or "", "model.path"))
    if positions >= config.data.max_length:
        return config
    _log.info(
        f"data.max_length={config.data.max_length} becomes {positions}: {config.model.path} has no"
        " more positions"
    )
    return replace(config, data=replace(config.data, max_length=positions))


def _refuse_too_few(config: RewardTrainingConfig, data: Mapping[str, Any], processes: int) -> None:
    """Raise DataError where no full step can be made, ConfigError for more processes than rows, and
    where held-out rows are needed. `data`: as from `_tokens`."""
    train: Tokenized = data["train"]
    needs = (config.seeds > 1, config.trainer.early_stop, config.trainer.best_by)
    if any(needs) and not data["held_out"].items:
        raise ConfigError(
            "seeds, trainer.early_stop and trainer.best_by need held-out rows, and none is left:"
            " give data.val_share above 0 and below 1, or data.val_files"
        )
    size = config.data.train_batch_size
    if len(train.items) < size:
        raise DataError(
            f"training rows: {len(train.items)} left, {len(train.dropped)} dropped (the longest has"
            f" {max(train.lengths, default=0)} tokens, and"
            f" data.max_length={config.data.max_length}), {len(train.unlabelled)} with no label"
            f" to learn from, and a step takes data.train_batch_size={size}: give more rows or a"
            " smaller batch"
        )
    if processes > size:
        raise ConfigError(
            f"{processes} training processes share the data.train_batch_size={size} rows of a step:"
            " give at least a row to each"
        )
