"""What one step of a run takes: responses, tokens and, on CPU, a rough time."""

from __future__ import annotations

from rmrl.cluster.devices import cores
from rmrl.config.schema import Config
from rmrl.models.checkpoint_inspect import parameter_count

CPU_FLOPS_PER_CORE = 45e9
"""Floating-point operations per second and core over a whole step: 81 tokens per second on 2 cores
for a policy of 135 million parameters (benchmarks/results/training.json), at the 8 operations per
parameter and token counted below."""
_SAMPLING, _TRAINING, _FORWARD = 2, 6, 2
"""Operations per parameter and token: a forward pass; a forward and a backward pass; a forward pass
of the reference."""
_LONG_S = 600


def step_cost(config: Config, *, device: str, reference: bool, prompt_tokens: float) -> str:
    """One sentence, with advice where a step on CPU takes more than ten minutes; `prompt_tokens`:
    tokens of a prompt on average."""
    data = config.data
    part = config.actor_rollout_ref
    responses = data.train_batch_size * part.rollout.n
    sentence = (
        f"one step samples and trains on {responses:,} responses of up to"
        f" {data.max_response_length:,} tokens"
    )
    if device != "cpu":
        return sentence
    per_token = _SAMPLING + _TRAINING * part.actor.ppo_epochs + (_FORWARD if reference else 0)
    operations = (
        per_token
        * parameter_count(str(part.model.path))
        * responses
        * (prompt_tokens + data.max_response_length)
    )
    seconds = operations / (CPU_FLOPS_PER_CORE * cores())
    sentence += (
        f": at full length about {duration(seconds)} on this CPU ({cores()} cores), rewards on top"
    )
    if seconds <= _LONG_S:
        return sentence
    small = "data.train_batch_size=8 actor_rollout_ref.rollout.n=4 data.max_response_length=64"
    return f"{sentence}; to try things out: {small}"


def duration(seconds: float) -> str:
    """Two digits at most: "40 s", "12 min", "9 h", "3 days"."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
