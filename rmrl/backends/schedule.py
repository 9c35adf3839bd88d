"""The learning rate as a function over optimizer steps, so that a checkpoint needs to keep the step
number only."""

from __future__ import annotations

import math

from rmrl.config.schema import OptimConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

DECAYS = ("constant", "linear", "cosine")


def warmup_steps(optim: OptimConfig, total_steps: int) -> int:
    """How long the linear warm-up is, in optimizer steps."""
    if optim.lr_warmup_steps >= 0:
        return optim.lr_warmup_steps
    return int(optim.lr_warmup_steps_ratio * total_steps)


def learning_rate(step: int, *, optim: OptimConfig, total_steps: int) -> float:
    """The rate at optimizer step `step` (the first is 0).

    Warm-up rises to the peak in equal parts, lr / w, 2 lr / w, ... so that no step is lost to a
    rate that is 0. After it, with x = share already made in the remaining steps (at most 1),

        linear: 1 - x        cosine: (1 + cos(pi x)) / 2

    each scaled to end at min_lr_ratio * lr. Raises ConfigError for an unknown lr_scheduler_type.
    """
    if optim.lr_scheduler_type not in DECAYS:
        raise ConfigError(
            "actor_rollout_ref.actor.optim.lr_scheduler_type: nothing named"
            f" '{optim.lr_scheduler_type}'{did_you_mean(optim.lr_scheduler_type, DECAYS)}"
        )
    warmup = warmup_steps(optim, total_steps)
    if step < warmup:
        return optim.lr * (step + 1) / warmup
    if optim.lr_scheduler_type == "constant":
        return optim.lr
    done = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    if optim.lr_scheduler_type == "linear":
        remaining = 1 - done
    else:
        remaining = (1 + math.cos(math.pi * done)) / 2
    return optim.lr * (optim.min_lr_ratio + (1 - optim.min_lr_ratio) * remaining)
