"""Start of the rollout engines and the publisher of new weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rmrl.cluster.engine_client import EngineClient
from rmrl.cluster.file_broadcast import node_files
from rmrl.cluster.pools import device_count, node_count
from rmrl.cluster.processes import RayProcess
from rmrl.errors import InfrastructureError, StallError
from rmrl.inference.engine_facts import rollout_facts
from rmrl.inference.environment import engine_environment
from rmrl.inference.loading import twice_where_memory_moved
from rmrl.inference.reward_engine_base import POLICY_ENGINE
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.weights.sender import TransferLink, group_options
from rmrl.models.checkpoint_inspect import local_checkpoint, weight_bytes
from rmrl.trainer.allocations import Allocations, all_or_none, threads
from rmrl.trainer.check_run import Checked
from rmrl.trainer.plan import rollout_sleeps
from rmrl.trainer.policy import Models
from rmrl.trainer.publish import Publisher, TransferPublisher, WeightPublisher
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.start_environment import add_environment

_log = logging.getLogger(__name__)


def replicas(checked: Checked) -> int:
    """Number of rollout engines: as many as fit their devices; on CPU the configured number."""
    rollout = checked.config.actor_rollout_ref.rollout
    trainer = checked.config.trainer
    if checked.device == "cpu":
        return rollout.data_parallel_size
    return max(1, device_count(trainer, rollout.pool) // rollout.tensor_parallel_size)


async def start_rollouts(checked: Checked, allocations: Allocations) -> RolloutPool:
    """Start engines that have loaded the policy's checkpoint."""
    config = checked.config
    rollout = checked.config.actor_rollout_ref.rollout
    model = checked.config.actor_rollout_ref.model
    allocation = allocations.of(rollout.pool)
    nodes = node_count(config.trainer, rollout.pool)
    count = threads(config.trainer, processes=-(-replicas(checked) // nodes))
    facts = rollout_facts(rollout.name)
    derived = facts.derived_arguments(model.override_config, checked.weight_transport)
    environment = _environment(checked, count)

    async def spawn(replica: int) -> Any:
        return await twice_where_memory_moved(lambda: started(replica))

    async def started(replica: int) -> Any:
        settings = RolloutEngineSettings.of(
            rollout,
            path=str(local_checkpoint(str(model.path))),
            tokenizer=model.tokenizer_path,
            device=checked.device,
            threads=count,
            max_model_len=context_length(checked),
            trust_remote_code=model.trust_remote_code,
            seed=rollout.seed + replica,
            float32_head=model.float32_head,
            # The user's own arguments take precedence over those that other settings decide.
            kwargs=derived | dict(rollout.engine_kwargs.get(rollout.name) or {}),
        )
        if checked.device == "cuda":
            rank = replica * rollout.tensor_parallel_size
        else:
            rank = spread(replica, replicas(checked), len(allocation.locations))
        host = allocation.host(
            rank, environment, devices=rollout.tensor_parallel_size, asynchronous=True
        )
        process = await host.spawn(
            "rmrl.inference.rollout:build_engine",
            {"name": rollout.name, "settings": settings},
            name=f"rollout-{replica}",
        )
        try:
            await process.call("start", timeout_s=config.reward.engine.load_timeout_s)
        except BaseException:
            await process.kill()
            raise
        process.remember_family()
        return process

    engines = await all_or_none(*(spawn(replica) for replica in range(replicas(checked))))
    pool = RolloutPool(
        engines,
        timeout_s=rollout.timeout_s,
        sleeps=rollout_sleeps(config, device=checked.device),
        start=spawn,
    )
    if rollout.source == "verifiers":
        await add_environment(pool, checked, max_model_len=context_length(checked))
    return pool


def context_length(checked: Checked) -> int:
    """Return how many tokens a prompt and its response may have."""
    data = checked.config.data
    length = checked.config.actor_rollout_ref.rollout.max_model_len
    return length or data.max_prompt_length + data.max_response_length


def _environment(checked: Checked, count: int) -> dict[str, str]:
    """Return the variables of an engine's process with `count` CPU threads."""
    device: Any = checked.device
    invariant = checked.config.actor_rollout_ref.rollout.batch_invariant
    return engine_environment(
        device=device,
        threads=count,
        batch_invariant=invariant,
        exact_pinned=checked.budget.exact_pinned,
        second_runner=draws_unfiltered(checked),
    )


def draws_unfiltered(checked: Checked) -> bool:
    """Return whether no sample of the rollout engines passes top_p or top_k. A policy that judges
    counts as filtered: rewards decide how it samples."""
    rollout = checked.config.actor_rollout_ref.rollout
    if any(plan.spec.name == POLICY_ENGINE for plan in checked.engines):
        return False
    kinds = [rollout, *([rollout.val_kwargs] if rollout.val_kwargs.do_sample else [])]
    return all(kind.top_p >= 1 and kind.top_k <= 0 for kind in kinds)


def spread(replica: int, replicas: int, ranks: int) -> int:
    """Return the rank beside which an engine runs on CPU: evenly over the ranks and so over the
    nodes, whose ranks are neighbours. Several engines may share one."""
    return replica * ranks // replicas


async def start_publisher(
    checked: Checked, allocations: Allocations, models: Models, rollouts: RolloutPool
) -> WeightPublisher:
    """Publish through files in shared memory, or vLLM's transfer (rollout.weight_transport); where
    "auto" chose a transfer that cannot be opened, through files."""
    config = checked.config
    rollout = config.actor_rollout_ref.rollout
    dtype = rollout.dtype
    timeout_s, transport = config.trainer.stall_timeout_s, checked.weight_transport

    async def in_files() -> Publisher:
        first = models.actor.group.first
        return Publisher(
            models.actor,
            rollouts,
            files=await node_files(first, rollouts.engines, timeout_s=timeout_s),
            engine_nodes=[engine.node_id for engine in rollouts.engines],
            dtype=dtype,
            size_hint_bytes=weight_bytes(str(config.actor_rollout_ref.model.path), dtype),
        )

    if transport == "file":
        return await in_files()
    width = rollout.tensor_parallel_size

    async def link(engines: Sequence[RayProcess]) -> TransferLink:
        options = group_options(
            transport,
            address=allocations.own.locations[0].address,
            # drawn here, at once before it is used
            port=await allocations.own.free_port(),
            ranks=models.actor.group.size,
            engines=len(engines),
            width=width,
        )
        client = EngineClient(
            engines,
            devices_per_engine=width,
            timeout_s=timeout_s,
            # A broadcast over NCCL waits for every rank, also for a dead one.
            outlives_engines=transport == "ipc",
            numbers_engines=transport == "nccl_m2n",
        )
        return TransferLink(
            transport=transport, rank=0, client=client, dtype=dtype, options=options
        )

    # NCCL's group of processes ends with any of them.
    after_loss = None if transport == "ipc" else in_files
    publisher = TransferPublisher(models.actor, rollouts, link, after_loss=after_loss)
    try:
        await publisher.open()
        return publisher
    except (InfrastructureError, StallError) as error:
        if rollout.weight_transport != "auto":
            raise
        _log.warning(
            f"new weights travel through files, since {transport} could not be opened: {error}"
        )
        return await in_files()
