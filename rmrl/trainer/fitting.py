"""Advice on activations that do not fit: smaller micro-batches, and rows that processes share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from itertools import chain

from rmrl.cluster.memory_plan import MemoryPlan
from rmrl.config.schema import Config, TrainedConfig
from rmrl.errors import MemoryPlanError
from rmrl.trainer.check_layout import ACTOR, layout_problems
from rmrl.trainer.check_strategy import strategy_problems
from rmrl.trainer.plan import Extras


def fitting_advice(
    config: Config, extras: Extras, *, device: str, plan: Callable[[Config, Extras], MemoryPlan]
) -> str:
    """Return a sentence with settings for micro-batches that make `plan` fit, with as few processes
    as possible that share a row. "" where there are none."""
    longest = config.data.max_prompt_length + config.data.max_response_length
    for size in range(1, config.trainer.world_size + 1):
        tried, others = deepcopy((config, extras))
        trained: dict[str, TrainedConfig] = {ACTOR: tried.actor_rollout_ref.actor}
        if others.critic is not None:
            trained["critic"] = others.critic
        settings: list[str] = []
        for section, role in trained.items():
            settings += _share(role, section, size=size, tokens=-(-longest // size))
        problems = chain(
            strategy_problems(tried, device=device),
            layout_problems(tried, others.critic, device=device),
        )
        if not settings or any(problems):
            continue
        with suppress(MemoryPlanError):
            plan(tried, others).check()
            return f". Or set {' '.join(settings)}, with which it fits"
    return ""


def _share(trained: TrainedConfig, section: str, *, size: int, tokens: int) -> list[str]:
    """Let `size` processes share rows, each with `tokens` at most. Return the settings that this
    changes."""
    changed: list[str] = []
    if trained.fsdp_config.ulysses_sequence_parallel_size != size:
        trained.fsdp_config.ulysses_sequence_parallel_size = size
        changed.append(f"{section}.fsdp_config.ulysses_sequence_parallel_size={size}")
    if trained.micro_batch_tokens > tokens:
        trained.ppo_max_token_len_per_gpu = tokens
        changed.append(f"{section}.ppo_max_token_len_per_gpu={tokens}")
    return changed
