"""rmrl's rewards as reward functions for TRL's GRPOTrainer (and RLOOTrainer, which calls the same
way):

    rewards = reward_funcs("reward.yaml")
    GRPOTrainer(reward_funcs=rewards, args=GRPOConfig(reward_weights=rewards.weights, ...), ...)

TRL calls each function with `prompts`, `completions`, `completion_ids`, the data set's columns as
lists, and from 1.0 on `trainer_state`, `log_extra` and `log_metric`. A function returns a number or
None per completion (`GRPOTrainer._calculate_rewards`, TRL 1.16). The trainer's reward adds up
weight x number over the functions that returned one. A completion for which all returned None has
no advantage and is left out of its group's mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rmrl.adapters.reward_rows import parted, turns_of
from rmrl.adapters.shared import Config, SharedRewards, settings_of, shared_rewards
from rmrl.api import EnginePlan, ScoreTable
from rmrl.data.trainer_rows import row_of
from rmrl.errors import ConfigError, DataError

COMBINED = "reward"
"""Name of the combined reward's callable."""

_NOT_COLUMNS = ("trainer_state", "log_extra", "log_metric", "environments")


class RewardFunc:
    """A reward function as TRL calls it: one component, or the combined reward. Picklable. A
    process that unpickles it starts its own rewards with the first call."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        """`name`: a component, or COMBINED. TRL uses it in its metrics (`rewards/<name>/mean`)."""
        self.__name__ = name
        self._config = config

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return a number per completion, None where there is none. Functions from one
        configuration score equal batches once. Errors as in `rmrl.Rewards.score_rows`."""
        name = self.__name__
        rows = rows_of(prompts, completions, completion_ids, columns)
        shared = shared_rewards(self._config)
        table = shared.read(rows, reader=name)
        if name == COMBINED:
            values = list(table["reward"])
        else:
            values = component_values(shared, table, name)
        self._log(shared, table, columns)
        return values

    def _log(self, shared: SharedRewards, table: ScoreTable, columns: Mapping[str, Any]) -> None:
        """Pass on the share of missing verdicts, and a column for the completions table, where the
        trainer has a place for them: a component its statuses, the combined reward all components'
        scores."""
        names = [self.__name__]
        kind = "status"
        if self.__name__ == COMBINED:
            names = [spec.name for spec in shared.components]
            kind = "score"
        log_extra: Callable[[str, list[Any]], None] | None = columns.get("log_extra")
        log_metric: Callable[[str, float], None] | None = columns.get("log_metric")
        for name in names:
            statuses = list(table[f"status_{name}"])
            if log_extra is not None:
                log_extra(f"{kind}_{name}", list(table[f"{kind}_{name}"]))
            if log_metric is not None:
                missing = sum(status not in ("ok", "skipped") for status in statuses)
                log_metric(f"rewards/{name}/missing", missing / len(statuses))


class RewardFuncs(list[RewardFunc]):
    """The list for `reward_funcs=`."""

    weights: list[float]
    """For `GRPOConfig(reward_weights=...)`, in the functions' order."""
    combined: RewardFunc
    """One function in the place of all: the reward as rmrl combines it, whatever the combiner."""


def reward_funcs(config: Config, *, combined: bool = False) -> RewardFuncs:
    """Return one reward function per component in a configuration, with its name; or, with
    `combined`, one function that returns the combined reward.

    `config`: the path of a YAML file, or a mapping, as `rmrl.Rewards` takes it. Engines start with
    the first call, and are put away after each batch. A component's number is its score after
    transforms and before its weight. On a row that has no reward (a verdict is missing and
    `on_missing` is `mask`) all components return None, so that TRL leaves the row out as rmrl does.
    Raises ConfigError where the configuration has problems, for rewards that a sum with fixed
    weights cannot express, and for engines on GPUs beside several training processes.
    """
    settings = settings_of(config)
    shared = shared_rewards(settings)
    check_processes(shared.rewards.checked.engines, int(os.environ.get("WORLD_SIZE") or 1))
    names = [spec.name for spec in shared.components]
    weights = [spec.weight for spec in shared.components]
    if combined:
        names = [COMBINED]
        weights = [1.0]
    else:
        _check_sum(shared)
    funcs = RewardFuncs(RewardFunc(settings, name) for name in names)
    funcs.weights = weights
    funcs.combined = RewardFunc(settings, COMBINED)
    return funcs


def rows_of(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None,
    columns: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return one row per completion. Raises DataError for lists whose lengths differ and for
    completions without text."""
    lists: dict[str, Sequence[Any]] = {"prompts": prompts, "completions": completions}
    if completion_ids is not None:
        lists["completion_ids"] = completion_ids
    for name, values in columns.items():
        if name not in _NOT_COLUMNS and isinstance(values, list | tuple):
            lists[name] = values
    for name, values in lists.items():
        if len(values) != len(prompts):
            raise DataError(
                f"'{name}' has {len(values)} values for {len(prompts)} prompts; need one per"
                " completion, the prompt of each repeated"
            )
    further = [name for name in lists if name in columns]
    rows: list[dict[str, Any]] = []
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        tokens = None if completion_ids is None else len(completion_ids[i])
        own = {name: lists[name][i] for name in further}
        before, response = parted(completion)
        rows.append(row_of(turns_of(prompt), response, own, tokens=tokens, before=before))
    return rows


def component_values(shared: SharedRewards, table: ScoreTable, name: str) -> list[float | None]:
    """Return a component's numbers for the trainer's sum: scores after transforms; imputed numbers,
    None without a verdict, behind a closed gate, and on rows without a reward."""
    (spec,) = [spec for spec in shared.components if spec.name == name]
    imputed = spec.on_missing.value if spec.on_missing.policy == "impute" else None
    values: list[float | None] = []
    columns = zip(table["reward"], table.transformed[name], table[f"status_{name}"], strict=True)
    for reward, value, status in columns:
        if reward is None:
            values.append(None)
        elif value is None and status != "skipped":
            values.append(imputed)
        else:
            values.append(value)
    return values


def check_processes(engines: Sequence[EnginePlan], processes: int) -> None:
    """Raise ConfigError where several training processes would each load the engines on the same
    GPUs. On CPU each has its own engines."""
    labels = [plan.label for plan in engines if plan.spec.device == "cuda"]
    if processes > 1 and labels:
        raise ConfigError(
            f"{', '.join(labels)}: each of the {processes} training processes would load the engine"
            " on the same GPUs; start `rmrl serve` with this configuration on GPUs of its own, and"
            " use the reward function for its wire trl (docs/serving.md)"
        )


def _check_sum(shared: SharedRewards) -> None:
    """Raise ConfigError where weight x score, summed over the components, is not the reward."""
    settings = shared.rewards.checked.config.reward
    reasons: list[str] = []
    if settings.combine != "weighted_sum":
        reasons.append(f"reward.combine={settings.combine}")
    for spec in shared.components:
        if spec.on_missing.policy == "renormalize":
            reasons.append(f"on_missing=renormalize of '{spec.name}'")
        if spec.sources is not None:
            reasons.append(f"weights by data_source of '{spec.name}'")
        if spec.name == COMBINED:
            reasons.append(f"a component of the name '{COMBINED}'")
    if reasons:
        raise ConfigError(
            f"TRL adds its reward functions up with one weight each, which cannot express"
            f" {', '.join(reasons)}; type reward_funcs(..., combined=True) for the combined reward"
            " as one function"
        )
