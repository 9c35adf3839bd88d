"""rmrl's rewards in verifiers environments.

Up to 0.3 an environment has a Rubric:

    env = vf.SingleTurnEnv(dataset=dataset, rubric=rubric("reward.yaml"))

From 0.4 on a task has reward functions, which a configuration plugs in by their path:

    export RMRL_REWARDS=reward.yaml
    --taskset.task.rewards.rmrl.fn rmrl.adapters.verifiers:reward

A Rubric's score is `state["reward"]` and `state["metrics"]` (`verifiers/rubrics/rubric.py`, 0.1.14,
and `legacy/rubrics/rubric.py`, 0.3.1). A reward function is awaited with what it names of `task`,
`trace` and `runtime`, and an exception makes the rollout invalid (`verifiers/v1/task.py`, 0.4.0).
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from rmrl.adapters.gathered import Gathered, Scored, gathered_rewards, number_of
from rmrl.adapters.reward_rows import parted, turns_of
from rmrl.adapters.shared import Config, config_from_environment, shared_rewards
from rmrl.data.trainer_rows import row_of
from rmrl.errors import ConfigError, DataError, RewardError

REWARDS = "RMRL_REWARDS"
MISSING_REWARD = "RMRL_MISSING_REWARD"


def rubric(config: Config, *, missing_reward: float | None = None) -> Any:
    """Return a `verifiers.Rubric` whose reward is the combined reward and whose metrics are the
    components (NaN without a verdict).

    Groups are scored as one batch, so rewards that compare responses work there; single rollouts
    that come close together are gathered. A rollout without a reward gets `missing_reward`, without
    which it raises RewardError. Raises ConfigError where the configuration has problems, and where
    verifiers has no Rubric.
    """
    base = getattr(import_module("verifiers"), "Rubric", None)
    if base is None:
        raise ConfigError(
            "this version of verifiers has no Rubric (0.4 removed it): plug the function"
            " rmrl.adapters.verifiers:reward into the task instead, with RMRL_REWARDS=reward.yaml"
        )
    shared = shared_rewards(config)
    groups = Gathered(shared, missing_reward)
    single = partial(gathered_rewards, config, missing_reward=missing_reward, caller="verifiers")

    class RewardsRubric(base):
        """A configuration's rewards. See `rubric`."""

        async def score_rollout(self, state: Any) -> None:
            """Score one rollout."""
            gathered = await asyncio.to_thread(single)
            try:
                row = state_row(state)
            except DataError as error:
                _write(state, gathered.unreadable(error))
            else:
                _write(state, await gathered.score_async(row))

        async def score_group(self, states: Sequence[Any]) -> None:
            """Score a group's rollouts together. Those that have no reward raise RewardError after
            the others have theirs."""
            errors: list[RewardError] = []
            scores = await asyncio.to_thread(_group_scores, groups, states)
            for state, scored in zip(states, scores, strict=True):
                try:
                    _write(state, scored)
                except RewardError as error:
                    errors.append(error)
            if errors:
                raise errors[0]
            _write_advantages(states)

    return RewardsRubric(funcs=[_combined])


async def reward(task: Any, trace: Any) -> float:
    """Return a trace's combined reward, by the file that RMRL_REWARDS names. See `reward_of`."""
    config = config_from_environment(REWARDS, "plug a function of your own with reward_of(...)")
    missing = number_of(os.environ.get(MISSING_REWARD), MISSING_REWARD)
    return await _trace_reward(config, missing, task, trace)


def reward_of(
    config: Config, *, missing_reward: float | None = None
) -> Callable[[Any, Any], Awaitable[float]]:
    """Return a reward function for verifiers 0.4 tasks, with its own configuration.

    It scores `trace.last_reply` as the response to `task.prompt` and the turns between them
    (`trace_row`). The task's other fields are columns (`answer` is the reference). The components
    become the trace's metrics, those without a verdict are left out. Traces that end close together
    are scored as one batch. A trace without a reward gets `missing_reward`, without which it raises
    RewardError and is invalid.
    """

    async def reward(task: Any, trace: Any) -> float:
        return await _trace_reward(config, missing_reward, task, trace)

    return reward


def state_row(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state's row (verifiers up to 0.3): `prompt`, `completion`, `answer`, `info`, and its
    input's columns. Raises DataError where it has no response."""
    columns: dict[str, Any] = {}
    raw_input = state.get("input")
    if isinstance(raw_input, Mapping):
        columns |= raw_input
    columns["answer"] = state.get("answer", columns.get("answer"))
    info = state.get("info")
    if isinstance(info, Mapping):
        columns["extra_info"] = dict(info)
    for name in ("prompt", "completion", "info"):
        columns.pop(name, None)
    before, response = parted(state.get("completion"))
    return row_of(turns_of(state["prompt"]), response, columns, before=before)


def trace_row(task: Any, trace: Any) -> dict[str, Any]:
    """Return a trace's row (verifiers 0.4): the task's system prompt and prompt, the turns
    that led to `trace.last_reply`, and that as the response.

    The turns come from the last branch whose last sampled message is the reply, from its first
    sampled message on (`verifiers/v1/trace.py`, 0.4.0). An agent that returns another text than its
    model wrote has none. What a harness put around the task's prompt is left out; where the task
    has no prompt, what stands in front of the first sampled message is the prompt.
    """
    columns: dict[str, Any] = dict(task.model_dump(exclude_none=True))
    columns.pop("prompt", None)
    prompt = turns_of(task.prompt)
    before: list[dict[str, Any]] = []
    for branch in reversed(trace.branches):
        turns = turns_of(node.message for node in branch.nodes)
        written: list[int] = [
            place
            for place, node in enumerate(branch.nodes)
            if node.sampled and turns[place]["role"] == "assistant"
        ]
        if written and turns[written[-1]]["content"].strip() == trace.last_reply:
            before = turns[written[0] : written[-1]]
            prompt = prompt or turns[: written[0]]
            break
    if columns.get("system_prompt"):
        told = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if all(turn["role"] != "system" for turn in told):
            prompt = [{"role": "system", "content": columns["system_prompt"]}, *told]
    return row_of(prompt, trace.last_reply, columns, before=before or None)


def _group_scores(groups: Gathered, states: Sequence[Any]) -> list[Scored]:
    """Return scores for a group's states, some of which may have no response: a rollout that
    failed."""
    scores: list[Scored | None] = []
    rows: list[dict[str, Any]] = []
    for state in states:
        try:
            rows.append(state_row(state))
        except DataError as error:
            scores.append(groups.unreadable(error))
        else:
            scores.append(None)
    readable = iter(groups.score_batch(rows, within_budget=False) if rows else ())
    return [next(readable) if scored is None else scored for scored in scores]


async def _trace_reward(
    config: Config, missing_reward: float | None, task: Any, trace: Any
) -> float:
    gathered = await asyncio.to_thread(
        gathered_rewards, config, missing_reward=missing_reward, caller="verifiers"
    )
    scored = await gathered.score_async(trace_row(task, trace))
    for name, number in scored.numbers().items():
        if not math.isnan(number):
            trace.record_metric(name, number)
    return scored.reward


async def _combined(state: Mapping[str, Any]) -> float:
    """The reward that a scored state got. The Rubric lists it as its function."""
    return float(state["reward"])


_combined.__name__ = "reward"


def _write(state: Any, scored: Scored) -> None:
    state["reward"] = scored.reward
    state["metrics"] = {"reward": scored.reward, **scored.numbers()}


def _write_advantages(states: Sequence[Any]) -> None:
    """Write the advantages as verifiers does: reward - the group's mean, also into the turns that
    have none."""
    if not states:
        return
    mean = sum(state["reward"] for state in states) / len(states)
    for state in states:
        state["advantage"] = state["reward"] - mean
        for turn in state.get("trajectory", ()):
            for name in ("advantage", "reward"):
                if turn[name] is None:
                    turn[name] = state[name]
