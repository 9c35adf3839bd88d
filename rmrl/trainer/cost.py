"""Cost of one step of a run: responses, tokens and, on CPU, a rough time."""

from __future__ import annotations

from rmrl.cluster.devices import cores
from rmrl.config.schema import Config
from rmrl.models.checkpoint_inspect import parameter_count

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


def step_cost(config: Config, *, device: str, reference: bool, prompt_tokens: float) -> str:
    """Describe the cost in one sentence, with advice where a step on CPU takes more than ten
    minutes; `prompt_tokens`: mean tokens of a prompt."""
    data = config.data
    part = config.actor_rollout_ref
    responses = data.train_batch_size * part.rollout.n
    sentence = (
        f"one step samples and trains on {responses:,} responses of up to"
        f" {data.max_response_length:,} tokens"
    )
    if device != "cpu":
        return sentence
    per_token = _SAMPLING + _TRAINING * part.actor.ppo_epochs
    if reference:
        per_token += _FORWARD
    tokens = responses * (prompt_tokens + data.max_response_length)
    operations = per_token * parameter_count(str(part.model.path)) * tokens
    seconds = operations / (CPU_FLOPS_PER_CORE * cores())
    sentence += (
        f": at full length about {duration(seconds)} on this CPU ({cores()} cores), rewards on top"
    )
    if seconds <= _LONG_S:
        return sentence
    small = "data.train_batch_size=8 actor_rollout_ref.rollout.n=4 data.max_response_length=64"
    return f"{sentence}; to try things out: {small}"


def duration(seconds: float) -> str:
    """Format with two digits at most: "40 s", "12 min", "9 h", "3 days"."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
