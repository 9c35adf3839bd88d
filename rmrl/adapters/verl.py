"""rmrl's rewards as verl's reward functions and reward manager.

    reward.custom_reward_function.path=pkg://rmrl.adapters.verl
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.rewards=reward.yaml

verl calls `compute_score(data_source=, solution_str=, ground_truth=, extra_info=)` per response,
from many threads, awaits it where it is async, and merges `reward_kwargs` into the call
(`verl/trainer/ppo/reward.py`, `verl/experimental/reward_loop`, verl 0.9). It takes a number, or a
dict whose `score` is the reward and whose other entries are logged. It passes no prompt: what a
reward model is to read stands in extra_info["prompt"], or the manager is used, which has it:

    reward.reward_manager.source=importlib reward.reward_manager.name=RewardManager
    reward.reward_manager.module.path=pkg://rmrl.adapters.verl
    +reward.reward_kwargs.rewards=reward.yaml

Instead of `rewards=` the environment variable RMRL_REWARDS may name the file. verl cannot leave a
response out: one without a reward is an error, unless `missing_reward=<number>` (or
RMRL_MISSING_REWARD) is given.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.adapters.gathered import Gathered, Scored, gathered_rewards, number_of
from rmrl.adapters.reward_rows import NO_PROMPT
from rmrl.adapters.shared import (
    Config,
    SharedRewards,
    config_from_environment,
    shared_rewards,
)
from rmrl.data.trainer_rows import row_of
from rmrl.errors import DataError

REWARDS = "RMRL_REWARDS"
MISSING_REWARD = "RMRL_MISSING_REWARD"
_KWARG = "+reward.custom_reward_function.reward_kwargs.rewards=reward.yaml"
_PROMPTS = ("prompt", "raw_prompt", "question")
"""Entries of extra_info that are the prompt, in the order in which they are looked for."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rewards: Config | None = None,
    missing_reward: float | None = None,
    **_: Any,
) -> dict[str, Any]:
    """Return {"score": reward, "score_<name>": ..., "status_<name>": ...} for one response. A
    component without a verdict is NaN.

    Calls from several threads are scored together. Raises ConfigError where the configuration has
    problems, DataError where a reward needs the prompt, RewardError for a response without a
    reward.
    """
    gathered = _gathered(rewards, missing_reward)
    row = _row(gathered.shared, data_source, solution_str, ground_truth, extra_info)
    return _as_dict(gathered.score(row))


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rewards: Config | None = None,
    missing_reward: float | None = None,
    **_: Any,
) -> dict[str, Any]:
    """`compute_score` for an event loop: however many responses wait, they take no threads."""
    gathered = await asyncio.to_thread(_gathered, rewards, missing_reward)
    row = _row(gathered.shared, data_source, solution_str, ground_truth, extra_info)
    return _as_dict(await gathered.score_async(row))


def compute_score_batch(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None],
    *,
    rewards: Config | None = None,
    missing_reward: float | None = None,
    **_: Any,
) -> list[dict[str, Any]]:
    """Return one dict per response, as `compute_score`. verl's batch manager calls in this form
    (`reward_manager=batch` up to 0.6): rewards that compare responses work, where the prompts are
    in extra_info. Errors as in `compute_score`, MissingVerdictsError where too many are missing."""
    shared = shared_rewards(rewards or config_from_environment(REWARDS, _KWARG))
    gathered = Gathered(shared, _missing(missing_reward))
    rows: list[dict[str, Any]] = []
    columns = zip(data_sources, solution_strs, ground_truths, extra_infos, strict=True)
    for data_source, text, ground_truth, extra_info in columns:
        rows.append(_row(shared, data_source, text, ground_truth, extra_info))
    return [_as_dict(scored) for scored in gathered.score_batch(rows)]


class RewardManager:
    """A reward manager for verl's reward loop: scores responses with their prompts.

    It has the two methods that the loop calls, and imports nothing from verl.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        """`config`: verl's. Its `reward.reward_kwargs` hold `rewards` and `missing_reward`.
        `compute_score` is not used."""
        del compute_score
        self._tokenizer = tokenizer
        settings: Mapping[str, Any] = config.reward.get("reward_kwargs") or {}
        where = "+reward.reward_kwargs.rewards=reward.yaml"
        rewards = settings.get("rewards") or config_from_environment(REWARDS, where)
        self._gathered = _gathered(rewards, settings.get("missing_reward"))

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return {"reward_score": reward, "reward_extra_info": {...}} for the last sequence in a
        DataProto with `responses` and `attention_mask`, and `raw_prompt`, `data_source`,
        `reward_model` and `extra_info` beside them. Errors as in `compute_score`."""
        item = data[-1:][0]
        response_ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-response_ids.shape[-1] :].sum())
        fields = item.non_tensor_batch
        text = await asyncio.to_thread(
            self._tokenizer.decode, response_ids[:length], skip_special_tokens=True
        )
        extra = {**(fields.get("extra_info") or {}), **(fields.get("tool_extra_fields") or {})}
        # As verl's own managers name them.
        extra["num_turns"] = fields.get("__num_turns__")
        extra["rollout_reward_scores"] = fields.get("reward_scores") or {}
        if fields.get("raw_prompt") is not None:
            extra["prompt"] = [dict(turn) for turn in fields["raw_prompt"]]
        reference = (fields.get("reward_model") or {}).get("ground_truth")
        source = str(fields.get("data_source", ""))
        row = _row(self._gathered.shared, source, text, reference, extra)
        scored = await self._gathered.score_async({**row, "response_tokens": length})
        numbers = _as_dict(scored)
        return {"reward_score": numbers.pop("score"), "reward_extra_info": numbers}

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: Sequence[float]) -> Any:
        """Return the rewards as a float32 tensor like `responses`: each at the last token of its
        response, 0 elsewhere."""
        import torch

        responses = data.batch["responses"]
        prompt_length = data.batch["prompts"].shape[1]
        lengths = data.batch["attention_mask"][:, prompt_length:].sum(dim=1)
        rewards = torch.zeros_like(responses, dtype=torch.float32)
        rows = torch.arange(len(lengths), device=rewards.device)
        rewards[rows, lengths - 1] = rewards.new_tensor(list(scores))
        return rewards


def _gathered(rewards: Config | None, missing_reward: Any) -> Gathered:
    config = rewards or config_from_environment(REWARDS, _KWARG)
    return gathered_rewards(config, missing_reward=_missing(missing_reward), caller="verl")


def _missing(missing_reward: Any) -> float | None:
    if missing_reward is not None:
        return number_of(missing_reward, "missing_reward")
    return number_of(os.environ.get(MISSING_REWARD), MISSING_REWARD)


def _row(
    shared: SharedRewards,
    data_source: Any,
    text: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the row. Raises DataError where a reward needs the prompt and there is none."""
    extra = dict(extra_info or {})
    prompts = [extra[name] for name in _PROMPTS if extra.get(name) is not None]
    if not prompts and shared.reads_prompts:
        raise DataError(
            "a reward reads the prompt, and verl passes none to compute_score: put it into"
            " extra_info['prompt'] when the data is made, or use the reward manager"
            " (reward.reward_manager.name=RewardManager, module.path=pkg://rmrl.adapters.verl)"
        )
    columns = {
        "data_source": str(data_source),
        "ground_truth": ground_truth,
        "extra_info": extra,
    }
    return row_of(prompts[0] if prompts else NO_PROMPT, text, columns)


def _as_dict(scored: Scored) -> dict[str, Any]:
    entries: dict[str, Any] = {"score": scored.reward}
    for name, number in scored.numbers().items():
        entries[f"score_{name}"] = number
    for name, status in scored.statuses().items():
        entries[f"status_{name}"] = status
    entries["missing"] = float(any(math.isnan(number) for number in scored.numbers().values()))
    return entries
