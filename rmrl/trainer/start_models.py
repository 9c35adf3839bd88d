"""Start of the training processes: their engines and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rmrl.backends import backend_of
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.row_assignment import row_assignment
from rmrl.cluster.worker_group import Allocation, WorkerGroup
from rmrl.config.schema import TrainedConfig
from rmrl.config.schema.actor import BACKEND_SECTIONS
from rmrl.inference.environment import train_environment
from rmrl.trainer.allocations import Allocations, all_or_none, threads
from rmrl.trainer.check_run import Checked
from rmrl.trainer.policy import Models, TrainedModel, TrainGroup
from rmrl.trainer.train_memory import offloads_state


async def start_models(checked: Checked, allocations: Allocations) -> Models:
    """Start the training processes: policy, reference and critic share them, unless the critic has
    a pool."""
    engines = train_settings(checked)
    critic = checked.critic
    apart: dict[str, TrainSettings] = {}
    if "critic" in engines and critic.pool is not None:
        apart["critic"] = engines.pop("critic")
    part = checked.config.actor_rollout_ref
    offloads = offloads_state(part.actor) or part.ref.param_offload
    if "critic" in engines:
        offloads = offloads or offloads_state(critic)
    starts = [_start_group(checked, allocations.of(None), engines, name="train", offloads=offloads)]
    if apart:
        offloads = offloads_state(critic)
        allocation = allocations.of(critic.pool)
        starts.append(_start_group(checked, allocation, apart, name="critic", offloads=offloads))
    groups = await all_or_none(*starts)
    roles: dict[str, TrainedModel] = {}
    for group, by_role in zip(groups, (engines, apart), strict=False):
        for role, settings in by_role.items():
            rows = row_assignment(settings.trained, group.size, section=settings.section)
            roles[role] = TrainedModel(group, role, rows)
    return Models(roles["actor"], reference=roles.get("ref"), critic=roles.get("critic"))


async def _start_group(
    checked: Checked,
    allocation: Allocation,
    engines: Mapping[str, TrainSettings],
    *,
    name: str,
    offloads: bool,
) -> TrainGroup:
    world = len(allocation.locations)
    timeout_s = checked.config.trainer.stall_timeout_s
    count = threads(checked.config.trainer, processes=-(-world // checked.config.trainer.nnodes))
    further: dict[str, str] = {}
    for settings in engines.values():
        further |= backend_of(settings.trained.strategy).environment
    environment = train_environment(threads=count, further=further)

    async def spawn(rank: int) -> Any:
        process = ProcessSettings(
            rank=rank,
            world_size=world,
            init_method=allocation.init_method,
            threads=count,
            timeout_s=timeout_s,
        )
        settings = {"engines": engines, "process": process}
        return await allocation.host(rank, environment).spawn(
            "rmrl.backends.worker:TrainWorker", settings, name=f"{name}-{rank}"
        )

    workers = WorkerGroup(await all_or_none(*(spawn(rank) for rank in range(world))))
    on_gpus = checked.device == "cuda"
    return TrainGroup(
        workers, timeout_s=timeout_s, offloads=offloads and on_gpus, shares_gpus=on_gpus
    )


def train_settings(checked: Checked) -> dict[str, TrainSettings]:
    """Return the engines of training by role, in the order in which they are built."""
    config = checked.config
    part = checked.config.actor_rollout_ref
    shared: dict[str, Any] = {
        "temperature": part.rollout.temperature,
        "max_response_length": config.data.max_response_length,
        "seed": config.trainer.seed,
        "device": checked.device,
    }
    learning = checked.total_steps - config.trainer.critic_warmup
    policy: dict[str, Any] = {
        "model": part.model,
        "total_steps": _optimizer_steps(checked, part.actor, learning),
        **shared,
    }
    frozen: dict[str, Any] = {**policy, "model": replace(part.model, lora_rank=0)}
    engines = {
        "actor": TrainSettings(
            role="actor",
            actor=part.actor,
            logprob_max_rows=part.rollout.log_prob_micro_batch_size_per_gpu,
            logprob_max_tokens=part.rollout.log_prob_max_token_len_per_gpu,
            **policy,
        )
    }
    if checked.needs_reference:
        offload = part.ref.param_offload
        sections: dict[str, Any] = {
            name: replace(getattr(part.actor, name), param_offload=offload)
            for name in BACKEND_SECTIONS
        }
        engines["ref"] = TrainSettings(
            role="ref",
            actor=replace(part.actor, **sections),
            logprob_max_rows=part.ref.log_prob_micro_batch_size_per_gpu,
            logprob_max_tokens=part.ref.log_prob_max_token_len_per_gpu,
            **frozen,
        )
    if checked.needs_critic:
        steps = _optimizer_steps(checked, checked.critic, checked.total_steps)
        engines["critic"] = TrainSettings(
            role="critic",
            model=checked.critic.model,
            actor=part.actor,
            critic=checked.critic,
            total_steps=steps,
            **shared,
        )
    return engines


def _optimizer_steps(checked: Checked, trained: TrainedConfig, steps: int) -> int:
    """Number of optimizer steps in the `steps` of the run in which the model learns, for its
    learning-rate schedule."""
    mini_batches = -(-checked.config.data.train_batch_size // trained.ppo_mini_batch_size)
    return max(1, steps * mini_batches * trained.ppo_epochs)
