"""From a checked configuration to a `Run`: the one file that knows every concrete choice, and starts the processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from rmrl.algorithms.kl import KLController
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.cluster.devices import cores
from rmrl.cluster.pools import Pools, pool_sizes, reserve_pools
from rmrl.cluster.session import ray_session
from rmrl.cluster.worker_group import Seats, WorkerGroup, reserve_seats
from rmrl.config.schema import Config
from rmrl.data.tokenizer import load_tokenizer
from rmrl.models.checkpoint_inspect import local_checkpoint, weight_bytes
from rmrl.rewards.monitor import Monitor
from rmrl.rewards.scorer import Scorer
from rmrl.rollout.base import RolloutEngineSettings
from rmrl.scoring.build import make_residency, make_scorer, slots
from rmrl.serving.environment import engine_environment, thread_environment
from rmrl.telemetry.sinks import SinkContext, open_sinks
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.trainer import output_dir
from rmrl.trainer.check import Checked, prompt_loader
from rmrl.trainer.policy import Policy
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.run import Run, Telemetry

Notice = Callable[[str], None]


@asynccontextmanager
async def build(checked: Checked, *, config_text: str, notice: Notice) -> AsyncIterator[Run]:
    """Claim the output folder, start the processes; all of them end with the block."""
    config, world = checked.config, checked.config.trainer.n_gpus_per_node * checked.config.trainer.nnodes
    async with AsyncExitStack() as stack:
        claim = stack.enter_context(
            output_dir.claim(checked.out_dir, config=config, config_text=config_text, resume_mode=config.trainer.resume_mode)
        )
        stack.enter_context(ray_session(config.ray_kwargs.ray_init, processes=slots(world, config.trainer.resource_pools)))
        seats = await reserve_seats(world, device=checked.device, nnodes=config.trainer.nnodes)
        stack.push_async_callback(seats.release)
        pools = await reserve_pools(pool_sizes(config.trainer.resource_pools), device=checked.device)
        stack.push_async_callback(pools.release)
        notice(f"starting {world} training process(es), {_replicas(checked)} rollout engine(s) on {checked.device}")
        policy, rollouts = await _all_or_none(_policy(checked, seats), _rollouts(checked, seats))
        run = _run(checked, policy, rollouts, _scorer(checked, seats, pools, notice), claim=claim, notice=notice)
        stack.push_async_callback(run.close)
        await run.scorer.residency.load_resident()
        yield run


async def _all_or_none(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of all; when one fails the others are stopped before its error is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- processes -----------------------------------------------------------------------------------------------------


async def _policy(checked: Checked, seats: Seats) -> Policy:
    config, world = checked.config, len(seats.seats)
    actor_settings, reference_settings = _train_settings(checked)
    threads = _threads(checked, processes=world)
    environment = thread_environment(threads)

    async def spawn(rank: int) -> Any:
        process = ProcessSettings(
            rank=rank,
            world_size=world,
            init_method=seats.init_method,
            threads=threads,
            timeout_s=config.trainer.stall_timeout_s,
        )
        settings = {"actor": actor_settings, "reference": reference_settings, "process": process}
        return await seats.host(rank, environment).spawn("rmrl.backends.worker:TrainWorker", settings, name=f"train-{rank}")

    group = WorkerGroup(await _all_or_none(*(spawn(rank) for rank in range(world))))
    fsdp = config.actor_rollout_ref.actor.fsdp_config
    asked = fsdp.param_offload or fsdp.optimizer_offload or config.actor_rollout_ref.ref.param_offload
    offloads = checked.device == "cuda" and asked
    return Policy(group, timeout_s=config.trainer.stall_timeout_s, offloads=offloads)


def _train_settings(checked: Checked) -> tuple[TrainSettings, TrainSettings | None]:
    config, part = checked.config, checked.config.actor_rollout_ref
    per_step = -(-config.data.train_batch_size // part.actor.ppo_mini_batch_size) * part.actor.ppo_epochs
    shared: dict[str, Any] = {
        "model": part.model,
        "actor": part.actor,
        "temperature": part.rollout.temperature,
        "total_steps": max(1, checked.total_steps * per_step),
        "max_response_length": config.data.max_response_length,
        "seed": config.trainer.seed,
        "device": checked.device,
    }
    actor = TrainSettings(role="actor", logprob_max_rows=part.rollout.log_prob_micro_batch_size_per_gpu, **shared)
    fsdp = replace(part.actor.fsdp_config, param_offload=part.ref.param_offload)
    of_reference: dict[str, Any] = {**shared, "actor": replace(part.actor, fsdp_config=fsdp)}
    reference = TrainSettings(
        role="ref",
        logprob_max_rows=part.ref.log_prob_micro_batch_size_per_gpu,
        logprob_max_tokens=part.ref.log_prob_max_token_len_per_gpu,
        **of_reference,
    )
    return actor, reference if checked.needs_reference else None


def _replicas(checked: Checked) -> int:
    rollout, trainer = checked.config.actor_rollout_ref.rollout, checked.config.trainer
    if checked.device == "cuda":
        return max(1, trainer.n_gpus_per_node * trainer.nnodes // rollout.tensor_parallel_size)
    return rollout.data_parallel_size


async def _rollouts(checked: Checked, seats: Seats) -> RolloutPool:
    config, rollout, model = checked.config, checked.config.actor_rollout_ref.rollout, checked.config.actor_rollout_ref.model
    threads = _threads(checked, processes=_replicas(checked))
    environment = engine_environment(device=checked.device, threads=threads)  # type: ignore[arg-type]

    async def spawn(replica: int) -> Any:
        settings = RolloutEngineSettings.of(
            rollout,
            path=str(local_checkpoint(str(model.path))),
            tokenizer=model.tokenizer_path,
            device=checked.device,
            threads=threads,
            max_model_len=rollout.max_model_len or config.data.max_prompt_length + config.data.max_response_length,
            trust_remote_code=model.trust_remote_code,
            seed=rollout.seed + replica,
            **({"kwargs": _engine_arguments(config)} if model.override_config else {}),
        )
        rank = replica * rollout.tensor_parallel_size if checked.device == "cuda" else 0
        host = seats.host(rank, environment, devices=rollout.tensor_parallel_size, asynchronous=True)
        process = await host.spawn("rmrl.rollout:build_engine", {"name": rollout.name, "settings": settings}, name=f"rollout-{replica}")
        try:
            await process.call("start", timeout_s=config.reward.engine.load_timeout_s)
        except BaseException:
            await process.kill()
            raise
        return process

    engines = await _all_or_none(*(spawn(replica) for replica in range(_replicas(checked))))
    return RolloutPool(engines, timeout_s=rollout.timeout_s, sleeps=rollout.free_cache_engine)


def _engine_arguments(config: Config) -> dict[str, Any]:
    """The user's engine arguments, and the model's overrides, so that rollout and training run the same model."""
    rollout = config.actor_rollout_ref.rollout
    given = dict(rollout.engine_kwargs.get(rollout.name) or {})
    return {"hf_overrides": dict(config.actor_rollout_ref.model.override_config), **given} if rollout.name == "vllm" else given


def _threads(checked: Checked, *, processes: int) -> int:
    """CPU threads per process: phases take turns, so each phase may use all cores."""
    return checked.config.trainer.threads_per_process or max(1, cores() // processes)


def _scorer(checked: Checked, seats: Seats, pools: Pools, notice: Notice) -> Scorer:
    residency = make_residency(checked.engines, checked.budget, seats=seats, pools=pools, notice=notice)
    trust = checked.config.actor_rollout_ref.model.trust_remote_code
    return make_scorer(checked.specs, checked.config.reward, residency=residency, trust_remote_code=trust, notice=notice)


def _run(checked: Checked, policy: Policy, rollouts: RolloutPool, scorer: Scorer, *, claim: output_dir.Claim, notice: Notice) -> Run:
    config = checked.config
    path = str(config.actor_rollout_ref.model.path)
    return Run(
        config=config,
        out_dir=checked.out_dir,
        total_steps=checked.total_steps,
        loader=None if checked.train_prompts is None or config.trainer.val_only else prompt_loader(config, checked.train_prompts),
        val_prompts=checked.val_prompts,
        policy=policy,
        rollouts=rollouts,
        scorer=scorer,
        controller=KLController(config.algorithm.kl_ctrl),
        open_telemetry=lambda resume_step: _telemetry(checked, resume_step, notice),
        notice=notice,
        config_fingerprint=claim.config_fingerprint,
        weight_bytes=weight_bytes(path, config.actor_rollout_ref.rollout.dtype),
        needs_reference=checked.needs_reference,
        decode=_decoder(checked),
        monitor=Monitor(config.reward.monitor) if config.reward.monitor.enable else None,
    )


def _decoder(checked: Checked) -> Callable[[Sequence[int]], str]:
    """The policy's tokens as the text that rewards read; its tokenizer is loaded when first needed."""
    model = checked.config.actor_rollout_ref.model
    load = cache(lambda: load_tokenizer(str(model.tokenizer_path or model.path), trust_remote_code=model.trust_remote_code))
    return lambda tokens: load().decode(list(tokens), skip_special_tokens=True)


def _telemetry(checked: Checked, resume_step: int | None, notice: Notice) -> Telemetry:
    trainer = checked.config.trainer
    context = SinkContext(
        out_dir=checked.out_dir,
        project=trainer.project_name,
        experiment=trainer.experiment_name,
        total_steps=checked.total_steps,
        resume_step=resume_step,
        config=asdict(checked.config),
    )
    return Telemetry(
        sinks=open_sinks(trainer.logger, context, notice=notice),
        samples=SampleWriter(checked.out_dir / "samples.jsonl", trainer.rollout_samples_per_step, resume_step=resume_step, notice=notice),
        val_samples=SampleWriter(checked.out_dir / "val_samples.jsonl", resume_step=resume_step, notice=notice),
    )
