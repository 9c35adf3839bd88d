"""From a configuration to a `Run`: the one file that knows every concrete choice. Cheap checks first, then data, then processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rmrl.algorithms import ADVANTAGES, LOSSES
from rmrl.algorithms.kl import KLController
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.cluster.devices import cores, free_bytes, resolve_device
from rmrl.cluster.session import ray_session
from rmrl.cluster.worker_group import Seats, WorkerGroup, reserve_seats
from rmrl.config.check import config_problems
from rmrl.config.legacy import translate
from rmrl.config.schema import Config
from rmrl.data.dataset import PromptTable, load_prompts
from rmrl.data.loader import PromptLoader
from rmrl.data.tokenizer import load_tokenizer
from rmrl.errors import ConfigError
from rmrl.models.checkpoint_inspect import local_checkpoint, weight_bytes
from rmrl.rewards.residency import plan_engines
from rmrl.rewards.resolve import Surroundings, functions_dirs, resolve_rewards
from rmrl.rewards.scorer import Scorer
from rmrl.rewards.spec import RewardSpec
from rmrl.rewards.table import reward_table
from rmrl.rollout import ROLLOUT_ENGINES
from rmrl.rollout.base import RolloutEngineSettings
from rmrl.serving.environment import engine_environment
from rmrl.telemetry.sinks import SinkContext, open_sinks
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.trainer import output_dir
from rmrl.trainer.plan import memory_plan
from rmrl.trainer.policy import Policy
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.run import Run, Telemetry

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A configuration without known problems, and what checking it found out. Nothing has been started or written."""

    config: Config
    device: str
    specs: tuple[RewardSpec, ...]
    train_prompts: PromptTable | None
    val_prompts: PromptTable | None
    total_steps: int
    needs_reference: bool
    out_dir: Path


def check(config: Config, *, shipped_functions: Path, notice: Notice) -> Checked:
    """Raises one ConfigError with all problems of configuration, rewards and checkpoints; then DataError; then MemoryPlanError."""
    for line in translate(config):
        notice(line)
    device = resolve_device(config.trainer.device)
    problems = [*config_problems(config), *_part_problems(config)]
    specs, reward_problems = _rewards(config, device, shipped_functions)
    problems += reward_problems
    if problems:
        raise ConfigError(problems)
    train, val = _prompts(config, notice)
    needs_reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    budget = config.trainer.memory_budget_gb
    plan = memory_plan(
        config,
        plan_engines(specs),
        device=device,
        budget_bytes=free_bytes(device) if budget is None else int(budget * 2**30),
        with_reference=needs_reference,
    )
    plan.check()
    notice(reward_table(specs))
    notice(plan.table())
    return Checked(
        config=config,
        device=device,
        specs=tuple(specs),
        train_prompts=train,
        val_prompts=val,
        total_steps=_total_steps(config, train),
        needs_reference=needs_reference,
        out_dir=out_dir(config),
    )


def out_dir(config: Config) -> Path:
    """Where the run writes: trainer.default_local_dir, else runs/<project>/<experiment>."""
    trainer = config.trainer
    return Path(trainer.default_local_dir or Path("runs") / trainer.project_name / trainer.experiment_name)


@asynccontextmanager
async def build(checked: Checked, *, config_text: str, notice: Notice) -> AsyncIterator[Run]:
    """Claim the output folder, start the processes; all of them end with the block."""
    config, world = checked.config, checked.config.trainer.n_gpus_per_node * checked.config.trainer.nnodes
    async with AsyncExitStack() as stack:
        claim = stack.enter_context(
            output_dir.claim(checked.out_dir, config=config, config_text=config_text, resume_mode=config.trainer.resume_mode)
        )
        stack.enter_context(ray_session(config.ray_kwargs.ray_init, processes=world))
        seats = await reserve_seats(world, device=checked.device, nnodes=config.trainer.nnodes)
        stack.push_async_callback(seats.release)
        notice(f"starting {world} training process(es), {_replicas(checked)} rollout engine(s) on {checked.device}")
        policy, rollouts = await asyncio.gather(_policy(checked, seats), _rollouts(checked, seats))
        run = _run(checked, policy, rollouts, _scorer(checked, seats, notice), claim=claim, notice=notice)
        stack.push_async_callback(run.close)
        await run.scorer.residency.load_resident()
        yield run


# --- checks --------------------------------------------------------------------------------------------------------


def _part_problems(config: Config) -> list[str]:
    """Names that a table must know, and the policy's checkpoint."""
    problems: list[str] = []
    for key, table, name in (
        ("algorithm.adv_estimator", ADVANTAGES, config.algorithm.adv_estimator),
        ("actor_rollout_ref.actor.policy_loss", LOSSES, config.actor_rollout_ref.actor.policy_loss),
        ("actor_rollout_ref.rollout.name", ROLLOUT_ENGINES, config.actor_rollout_ref.rollout.name),
    ):
        problems += _problem_of(lambda table=table, name=name: table[name], key)
    if config.actor_rollout_ref.model.path:
        problems += _problem_of(lambda: local_checkpoint(str(config.actor_rollout_ref.model.path)), "actor_rollout_ref.model.path")
    return problems


def _problem_of(look_up: Callable[[], Any], key: str) -> list[str]:
    try:
        look_up()
    except ConfigError as error:
        return [p if key in p else f"{key}: {p}" for p in error.problems]
    except (ImportError, AttributeError) as error:
        return [f"{key}: {error}; give package.module:name of something that can be imported"]
    return []


def _rewards(config: Config, device: str, shipped: Path) -> tuple[list[RewardSpec], list[str]]:
    try:
        folders = functions_dirs(config.reward.functions_dir, working_dir=Path.cwd(), shipped_dir=shipped)
    except ConfigError as error:
        return [], error.problems
    around = Surroundings(
        device=device,
        threads=cores(),
        functions_dirs=folders,
        trust_remote_code=config.actor_rollout_ref.model.trust_remote_code,
    )
    resolved = resolve_rewards(config.reward, around)
    return resolved.specs, resolved.problems


def _prompts(config: Config, notice: Notice) -> tuple[PromptTable | None, PromptTable | None]:
    model = config.actor_rollout_ref.model
    tokenizer = load_tokenizer(
        str(config.data.tokenizer or model.tokenizer_path or model.path),
        trust_remote_code=config.data.trust_remote_code or model.trust_remote_code,
        chat_template=model.custom_chat_template,
    )
    train = load_prompts(config.data, tokenizer, split="train", notice=notice) if config.data.train_files else None
    val = load_prompts(config.data, tokenizer, split="val", notice=notice) if config.data.val_files else None
    return train, val


def _total_steps(config: Config, train: PromptTable | None) -> int:
    per_epoch = 0 if train is None else len(train) // config.data.train_batch_size
    steps = config.trainer.total_training_steps
    return per_epoch * config.trainer.total_epochs if steps is None else steps


# --- processes -----------------------------------------------------------------------------------------------------


async def _policy(checked: Checked, seats: Seats) -> Policy:
    config, world = checked.config, len(seats.seats)
    actor_settings, reference_settings = _train_settings(checked)
    threads = _threads(checked, processes=world)
    environment = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}

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

    group = WorkerGroup(await asyncio.gather(*(spawn(rank) for rank in range(world))))
    fsdp = config.actor_rollout_ref.actor.fsdp_config
    offloads = checked.device == "cuda" and (fsdp.param_offload or fsdp.optimizer_offload)
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
    reference = TrainSettings(
        role="ref",
        logprob_max_rows=part.ref.log_prob_micro_batch_size_per_gpu,
        logprob_max_tokens=part.ref.log_prob_max_token_len_per_gpu,
        **shared,
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
        )
        rank = replica * rollout.tensor_parallel_size if checked.device == "cuda" else 0
        host = seats.host(rank, environment, devices=rollout.tensor_parallel_size, asynchronous=True)
        process = await host.spawn("rmrl.rollout:build_engine", {"name": rollout.name, "settings": settings}, name=f"rollout-{replica}")
        await process.call("start", timeout_s=config.reward.engine.load_timeout_s)
        return process

    engines = await asyncio.gather(*(spawn(replica) for replica in range(_replicas(checked))))
    return RolloutPool(engines, timeout_s=rollout.timeout_s, sleeps=rollout.free_cache_engine)


def _threads(checked: Checked, *, processes: int) -> int:
    """CPU threads per process: phases take turns, so each phase may use all cores."""
    return checked.config.trainer.threads_per_process or max(1, cores() // processes)


def _scorer(checked: Checked, seats: Seats, notice: Notice) -> Scorer:
    reward = checked.config.reward
    threads = max((spec.engine.threads for spec in checked.specs if spec.engine), default=1)
    devices = max((spec.engine.tensor_parallel_size for spec in checked.specs if spec.engine), default=1)
    trust = checked.config.actor_rollout_ref.model.trust_remote_code
    return Scorer(
        checked.specs,
        host=seats.host(0, engine_environment(device=checked.device, threads=threads), devices=devices),  # type: ignore[arg-type]
        tokenizer=cache(lambda path: load_tokenizer(path, trust_remote_code=trust)),
        how=reward.combine,
        max_missing=reward.max_missing,
        rule_workers=reward.rule_workers or min(8, cores()),
        notice=notice,
    )


def _run(checked: Checked, policy: Policy, rollouts: RolloutPool, scorer: Scorer, *, claim: output_dir.Claim, notice: Notice) -> Run:
    config = checked.config
    path = str(config.actor_rollout_ref.model.path)
    prompts = checked.train_prompts if checked.train_prompts is not None else checked.val_prompts
    assert prompts is not None
    loader = PromptLoader(
        prompts,
        batch_size=min(config.data.train_batch_size, len(prompts)) if checked.train_prompts is None else config.data.train_batch_size,
        shuffle=config.data.shuffle,
        seed=config.trainer.seed if config.data.seed is None else config.data.seed,
    )
    return Run(
        config=config,
        out_dir=checked.out_dir,
        total_steps=checked.total_steps,
        loader=loader,
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
    )


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
