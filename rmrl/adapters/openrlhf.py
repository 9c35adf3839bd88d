"""rmrl's rewards as OpenRLHF's reward function, in a file of two lines:

    from rmrl.adapters.openrlhf import reward_func_of
    reward_func = reward_func_of("reward.yaml")

    python -m openrlhf.cli.train_ppo_ray --reward.remote_url my_rewards.py ...

This file itself can be named there too, with RMRL_REWARDS=reward.yaml in the environment.
OpenRLHF imports the file in each of its vLLM processes and calls `reward_func(queries, prompts,
labels)` with lists of one response, from threads. It reads `rewards`, `scores` and `extra_logs` of
the returned dict (`openrlhf/utils/agent.py`, `trainer/ppo_utils/samples_generator.py`, 0.11.2). An
exception is logged there and the response has no reward.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rmrl.adapters.gathered import Scored, gathered_rewards, number_of
from rmrl.adapters.shared import Config, config_from_environment
from rmrl.data.queries import response_of
from rmrl.data.trainer_rows import row_of
from rmrl.errors import DataError

REWARDS = "RMRL_REWARDS"
MISSING_REWARD = "RMRL_MISSING_REWARD"


def reward_func(
    queries: Sequence[str],
    prompts: Sequence[str],
    labels: Sequence[Any] | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """Score with the rewards in the file that RMRL_REWARDS names. See `reward_func_of`."""
    config = config_from_environment(REWARDS, "write a file with reward_func_of('reward.yaml')")
    missing = number_of(os.environ.get(MISSING_REWARD), MISSING_REWARD)
    return _scored(config, missing, (queries, prompts, labels), columns)


def reward_func_of(
    config: Config, *, missing_reward: float | None = None
) -> Callable[..., dict[str, Any]]:
    """Return a `reward_func` with its own configuration: `reward_func =
    reward_func_of("reward.yaml")` in the file for --reward.remote_url.

    The function takes `queries` (prompt and response as one text each), `prompts` and `labels` (the
    references), and returns {"rewards": float32 [B], "scores": float32 [B], "extra_logs": {name:
    float32 [B]}} as tensors; `scores` are the rewards, `extra_logs` the components, NaN without a
    verdict. A response without a reward gets `missing_reward`, without which it raises
    RewardError. Raises DataError where a query does not hold its prompt.
    """

    def reward_func(
        queries: Sequence[str],
        prompts: Sequence[str],
        labels: Sequence[Any] | None = None,
        **columns: Any,
    ) -> dict[str, Any]:
        return _scored(config, missing_reward, (queries, prompts, labels), columns)

    return reward_func


def _scored(
    config: Config,
    missing_reward: float | None,
    lists: tuple[Sequence[str], Sequence[str], Sequence[Any] | None],
    columns: dict[str, Any],
) -> dict[str, Any]:
    import torch

    queries, prompts, labels = lists
    gathered = gathered_rewards(config, missing_reward=missing_reward, caller="OpenRLHF")
    futures: list[Any] = []
    for i, (query, prompt) in enumerate(zip(queries, prompts, strict=True)):
        own: dict[str, Any] = {"ground_truth": labels[i] if labels is not None else None}
        for name, values in columns.items():
            if isinstance(values, list | tuple) and len(values) == len(queries):
                own[name] = values[i]
        futures.append(gathered.submit(row_of(prompt, _response(query, prompt), own)))
    scored: list[Scored] = [gathered.result(future) for future in futures]
    rewards = torch.tensor([each.reward for each in scored], dtype=torch.float32)
    logs: dict[str, Any] = {}
    for name in scored[0].components if scored else ():
        numbers = [each.numbers()[name] for each in scored]
        logs[f"score_{name}"] = torch.tensor(numbers, dtype=torch.float32)
    return {"rewards": rewards, "scores": rewards, "extra_logs": logs}


def _response(query: str, prompt: str) -> str:
    """Return a query's response. Raises DataError where the query does not hold the prompt."""
    response = response_of(query, prompt)
    if response is None:
        raise DataError(
            f"a query begins with {query[:60]!r} and its prompt with {prompt[:60]!r}: the response"
            " is what stands behind the prompt, and it is not there"
        )
    return response
