"""Build a `Run` from a checked configuration: the one file with every concrete choice, and
starts the processes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import cache, partial

from rmrl.algorithms import estimator_named
from rmrl.algorithms.kl import KLController
from rmrl.assemble.build import make_residency, make_scorer, slots
from rmrl.cluster.memory_plan import gib
from rmrl.cluster.pools import pool_sizes, reserve_pools
from rmrl.cluster.processes import node_lines
from rmrl.cluster.session import ray_session
from rmrl.cluster.worker_group import allocate_ranks
from rmrl.heartbeat import heartbeat
from rmrl.logs import write_to
from rmrl.rewards.residency import Residency
from rmrl.rewards.session.monitor import Monitor
from rmrl.telemetry.clock import StepClock
from rmrl.telemetry.hints import HintFile
from rmrl.telemetry.sinks import SinkContext, open_sinks
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.tokenizer import load_tokenizer
from rmrl.trainer import output_dir
from rmrl.trainer.allocations import Allocations, all_or_none
from rmrl.trainer.check_run import Checked, prompt_loader
from rmrl.trainer.collector import Collector
from rmrl.trainer.measures import Measures
from rmrl.trainer.plan import rollout_asleep_bytes
from rmrl.trainer.policy import Models
from rmrl.trainer.policy_host import PolicyHost
from rmrl.trainer.policy_judge import judge_key
from rmrl.trainer.publish import WeightPublisher
from rmrl.trainer.records import Telemetry
from rmrl.trainer.reward_files import changes_since_start
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.run import Run
from rmrl.trainer.start_models import start_models
from rmrl.trainer.start_rollouts import replicas, start_publisher, start_rollouts
from rmrl.trainer.throughput import Throughput

_log = logging.getLogger(__name__)


@asynccontextmanager
async def build(checked: Checked, *, config_text: str) -> AsyncIterator[Run]:
    """Claim the output folder, start the processes. All of them end with the block."""
    config = checked.config
    world = config.trainer.world_size
    async with AsyncExitStack() as stack:
        claim = stack.enter_context(
            output_dir.claim(
                checked.out_dir,
                config=config,
                config_text=config_text,
                resume_mode=config.trainer.resume_mode,
            )
        )
        write_to(checked.out_dir / output_dir.LOG_FILE)
        for line in changes_since_start(checked.out_dir, checked.specs):
            _log.warning(line)
        _log.info("starting Ray, or joining its cluster")
        stack.enter_context(
            ray_session(
                config.ray_kwargs.ray_init, processes=slots(world, config.trainer.resource_pools)
            )
        )
        stacks = checked.out_dir / "stalls"
        allocation = await allocate_ranks(
            world, device=checked.device, nnodes=config.trainer.nnodes, stack_folder=stacks
        )
        stack.push_async_callback(allocation.release)
        pools = await reserve_pools(
            pool_sizes(config.trainer.resource_pools), device=checked.device, stack_folder=stacks
        )
        stack.push_async_callback(pools.release)
        _log.info(
            f"starting {world} training process(es), {replicas(checked)} rollout engine(s) on"
            f" {checked.device}"
        )
        allocations = Allocations(allocation, pools)
        async with AsyncExitStack() as starting:  # until the run is whole and closes all of it
            async with heartbeat("still loading the policy into its processes"):
                models, rollouts = await _start(checked, allocations)
            starting.push_async_callback(models.close)
            starting.push_async_callback(rollouts.close)
            for line in node_lines([*models.processes, *rollouts.engines]):
                _log.info(line)
            publisher = await start_publisher(checked, allocations, models, rollouts)
            starting.push_async_callback(publisher.close)
            collector = _collector(checked, rollouts, allocations)
            run = _run(checked, models, collector, publisher=publisher, claim=claim)
            starting.pop_all()
        stack.push_async_callback(run.close)
        await _load_resident(checked, run.collector)
        yield run


async def _load_resident(checked: Checked, collector: Collector) -> None:
    """Start the engines that stay in memory; rollout engines sleep meanwhile where they share the
    devices, since a new engine takes its part of the free memory."""
    residency = collector.scorer.residency
    if checked.device == "cuda":
        collector.rollouts.on_asleep = partial(_compare_asleep, checked, residency)
    if any(plan.residency == "resident" and not plan.place for plan in checked.engines):
        await collector.rollouts.sleep()
    await residency.load_resident()


def _compare_asleep(checked: Checked, residency: Residency, bytes_E: Sequence[int]) -> None:
    """Take from the reward engines what sleeping rollout engines hold beyond the plan. `bytes_E`:
    of each engine, over its devices."""
    rollout = checked.config.actor_rollout_ref.rollout
    planned = rollout_asleep_bytes(checked.config, device=checked.device)
    held = max(bytes_E, default=0) // rollout.tensor_parallel_size
    if held <= planned:
        return
    _log.warning(
        f"sleeping rollout engines hold {gib(held)} of each GPU, and {gib(planned)} were planned:"
        " reward engines have that much less, and fewer of them stay awake or asleep in memory"
    )
    residency.give_up("", held - planned)


async def _start(checked: Checked, allocations: Allocations) -> tuple[Models, RolloutPool]:
    """Start both at once, except on GPUs that they share: an engine takes its part of the free
    memory there, so training makes room first."""
    if checked.device == "cpu" or checked.config.actor_rollout_ref.rollout.pool is not None:
        models, rollouts = await all_or_none(
            start_models(checked, allocations), start_rollouts(checked, allocations)
        )
        return models, rollouts
    models = await start_models(checked, allocations)
    try:
        async with models.on_device():
            pass
        return models, await start_rollouts(checked, allocations)
    except BaseException:
        await models.close()
        raise


def _collector(checked: Checked, rollouts: RolloutPool, allocations: Allocations) -> Collector:
    residency = make_residency(
        checked.engines,
        checked.budget,
        allocation=allocations.own,
        pools=allocations.pools,
        policy=PolicyHost(rollouts),
    )
    scorer = make_scorer(
        checked.specs,
        checked.config.reward,
        residency=residency,
        trust_remote_code=checked.config.actor_rollout_ref.model.trust_remote_code,
    )
    return Collector(
        config=checked.config,
        rollouts=rollouts,
        scorer=scorer,
        clock=StepClock(),
        greedy_baseline=estimator_named(checked.config.algorithm.adv_estimator).baseline,
        scores_on_policy_devices=any(not plan.place for plan in checked.engines),
        judge=judge_key(checked.engines),
    )


def _run(
    checked: Checked,
    models: Models,
    collector: Collector,
    *,
    publisher: WeightPublisher,
    claim: output_dir.Claim,
) -> Run:
    config = checked.config
    loader = None
    if checked.train_prompts is not None and not config.trainer.val_only:
        loader = prompt_loader(config, checked.train_prompts)
    model = config.actor_rollout_ref.model
    # Decodes the policy's tokens into the text that rewards read; loaded on first use.
    tokenizer = cache(
        lambda: load_tokenizer(
            str(model.tokenizer_path or model.path), trust_remote_code=model.trust_remote_code
        )
    )
    monitor = None
    if config.reward.monitor.enable:
        watchers = [spec.name for spec in checked.specs if spec.watch is not None]
        monitor = Monitor(config.reward.monitor, watchers=watchers)
    return Run(
        config=config,
        out_dir=checked.out_dir,
        total_steps=checked.total_steps,
        loader=loader,
        val_prompts=checked.val_prompts,
        models=models,
        collector=collector,
        publisher=publisher,
        critic=checked.critic,
        controller=KLController(config.algorithm.kl_ctrl),
        open_telemetry=lambda resume_step: _telemetry(checked, resume_step),
        config_fingerprint=claim.config_fingerprint,
        decode=lambda tokens: tokenizer().decode(list(tokens), skip_special_tokens=True),
        monitor=monitor,
        measures=Measures(
            models,
            collector.rollouts,
            throughput=Throughput.of(config, generate_devices=_rollout_devices(checked)),
            epochs=config.actor_rollout_ref.actor.ppo_epochs,
            profile_steps=config.trainer.profile_steps or (),
            profile_folder=checked.out_dir / "profile",
        ),
    )


def _rollout_devices(checked: Checked) -> int:
    """Return the number of GPUs that sample, on CPU that of engines."""
    if checked.device == "cpu":
        return replicas(checked)
    return replicas(checked) * checked.config.actor_rollout_ref.rollout.tensor_parallel_size


def _telemetry(checked: Checked, resume_step: int | None) -> Telemetry:
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
        # curves and resumes need metrics.jsonl
        sinks=open_sinks([*trainer.logger, "jsonl"], context),
        samples=SampleWriter(
            checked.out_dir / "samples.jsonl",
            trainer.rollout_samples_per_step,
            resume_step=resume_step,
        ),
        val_samples=SampleWriter(checked.out_dir / "val_samples.jsonl", resume_step=resume_step),
        hints=HintFile(checked.out_dir, resume_step=resume_step),
    )
