"""What one step of a run costs: responses, tokens and, on CPU, a rough time."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

from rmrl.cluster.devices import cores
from rmrl.config.schema import Config
from rmrl.data.dataset import PromptTable
from rmrl.models.checkpoint_inspect import parameter_count
from rmrl.telemetry.clock import rough_duration

_log = logging.getLogger(__name__)

CPU_FLOPS_PER_CORE = 45e9
"""Floating-point operations per second and core over a whole step: 81 tokens per second on 2 cores
for a policy of 135 million parameters (benchmarks/results/training.json), at the 8 operations per
parameter and token counted below."""
_SAMPLING = 2
"""Operations per parameter and token of a forward pass that samples."""
_TRAINING = 6
"""Operations per parameter and token of a forward and a backward pass."""
_FORWARD = 2
"""Operations per parameter and token of a forward pass of the reference."""
_LONG_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCost:
    """Cost of one step without its rewards."""

    responses: int
    prompt_tokens: int
    """Tokens of all prompts, each counted for every response to it."""
    response_tokens: int
    """At full length."""
    seconds: float | None
    """At full length, None on a GPU, where this is not estimated."""


def policy_cost(
    config: Config, *, device: str, reference: bool, prompt_tokens: float
) -> PolicyCost:
    """Estimate the cost of sampling and training in one step; `prompt_tokens`: mean tokens of a
    prompt."""
    data = config.data
    part = config.actor_rollout_ref
    responses = data.train_batch_size * part.rollout.n
    cost = PolicyCost(
        responses=responses,
        prompt_tokens=round(responses * prompt_tokens),
        response_tokens=responses * data.max_response_length,
        seconds=None,
    )
    if device != "cpu":
        return cost
    per_token = _SAMPLING + _TRAINING * part.actor.ppo_epochs
    if reference:
        per_token += _FORWARD
    tokens = responses * (prompt_tokens + data.max_response_length)
    operations = per_token * parameter_count(str(part.model.path)) * tokens
    return dataclasses.replace(cost, seconds=operations / (CPU_FLOPS_PER_CORE * cores()))


def say_cost(config: Config, train: PromptTable | None, *, device: str, reference: bool) -> None:
    """Log what `step_cost` says, for a run that trains on these prompts."""
    if train is not None and not config.trainer.val_only:
        tokens = float(train.lengths.mean())
        _log.info(step_cost(config, device=device, reference=reference, prompt_tokens=tokens))


def step_cost(config: Config, *, device: str, reference: bool, prompt_tokens: float) -> str:
    """Describe the cost in one sentence, with advice where a step on CPU takes more than ten
    minutes; arguments of `policy_cost`."""
    cost = policy_cost(config, device=device, reference=reference, prompt_tokens=prompt_tokens)
    sentence = (
        f"one step samples and trains on {cost.responses:,} responses of up to"
        f" {config.data.max_response_length:,} tokens"
    )
    if cost.seconds is None:
        return sentence
    sentence += (
        f": at full length about {rough_duration(cost.seconds)} on this CPU ({cores()} cores),"
        " rewards on top"
    )
    if cost.seconds <= _LONG_S:
        return sentence
    small = "data.train_batch_size=8 actor_rollout_ref.rollout.n=4 data.max_response_length=64"
    return f"{sentence}; to try things out: {small}"
