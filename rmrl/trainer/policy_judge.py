"""The policy as judge of its own responses (`path: policy` of a reward), as rewards name it.

The rollout engines are an engine of the rewards' residency like any other, which answers from the
weights that sampled the batch, and has its turn with the engines that share its devices.
`rmrl.trainer.policy_host` makes the requests reach them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

from rmrl.cluster.devices import Devices
from rmrl.cluster.pools import device_count
from rmrl.config.schema import Config
from rmrl.errors import ConfigError
from rmrl.inference.engine_facts import rollout_facts
from rmrl.inference.reward_engine_base import POLICY_ENGINE, EngineSpec
from rmrl.inference.settings import ROLLOUT_SEQUENCES
from rmrl.models.checkpoint_inspect import local_checkpoint
from rmrl.rewards.entries.section import Policy
from rmrl.rewards.residency import EnginePlan
from rmrl.trainer.plan import rollout_beyond_sleep


def policy_of(config: Config, devices: Devices) -> Policy | None:
    """Return the policy as rewards may name it, None where it has no checkpoint that can be read,
    which is reported elsewhere."""
    model = config.actor_rollout_ref.model
    rollout = config.actor_rollout_ref.rollout
    with suppress(ConfigError, ImportError, AttributeError):
        path = str(local_checkpoint(str(model.path)))
        device: Any = devices.kind
        judge = EngineSpec(
            path=path,
            runner="generate",
            name=POLICY_ENGINE,
            device=device,
            threads=1,
            dtype=rollout.dtype,
            max_model_len=rollout.max_model_len,
            max_num_seqs=rollout.max_num_seqs or ROLLOUT_SEQUENCES[device],
            max_num_batched_tokens=rollout.max_num_batched_tokens,
            tensor_parallel_size=1,
            gpu_memory_utilization=rollout.gpu_memory_utilization,
            kv_cache_bytes=rollout.kv_cache_bytes,
            trust_remote_code=model.trust_remote_code,
            pool=rollout.pool or "",
            kwargs={
                "awake_bytes": rollout_beyond_sleep(
                    config, device=device, gpu_bytes=devices.total_bytes()
                )
            },
        )
        return Policy(path=path, judge=judge, problem=_problem(config))
    return None


def _problem(config: Config) -> str:
    """Why the rollout engines cannot judge, as the end of a sentence. "": they can."""
    rollout = config.actor_rollout_ref.rollout
    data = config.data
    if not rollout_facts(rollout.name).answers:
        return (
            f"actor_rollout_ref.rollout.name={rollout.name} answers no requests of rewards; use"
            " rollout.name=vllm, or path=reference, whose engine is one of its own"
        )
    longest = data.max_prompt_length + data.max_response_length
    if rollout.max_model_len is None or rollout.max_model_len <= longest:
        return (
            "a judge reads prompt, response and its question, and"
            f" actor_rollout_ref.rollout.max_model_len={rollout.max_model_len} has room for prompt"
            f" and response alone: set it to more than {longest}, e.g. {longest + 512}"
        )
    return ""


def on_all_devices(plans: Sequence[EnginePlan], config: Config) -> list[EnginePlan]:
    """Return the plans, that of the policy on every device of the rollout engines."""
    placed: list[EnginePlan] = []
    for plan in plans:
        if plan.spec.by_policy and plan.spec.device == "cuda":
            count = device_count(config.trainer, plan.place or None)
            plan = dataclasses.replace(plan, devices=tuple(range(count)))
        placed.append(plan)
    return placed


def judge_key(plans: Sequence[EnginePlan]) -> Hashable | None:
    """Return the key of the policy's plan where its rollout engines share devices with others, and
    so have to be awake for it; None where they do not, or judge nothing."""
    return next((plan.key for plan in plans if plan.spec.by_policy and not plan.place), None)
