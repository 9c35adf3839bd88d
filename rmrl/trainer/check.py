"""Everything about a run that can be found wrong before a process is started or a file is written. Knows no Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.algorithms import ADVANTAGES, LOSSES
from rmrl.backends import TRAIN_ENGINES
from rmrl.cluster.devices import resolve_device
from rmrl.config.check import config_problems
from rmrl.config.legacy import translate
from rmrl.config.schema import Config
from rmrl.data.dataset import PromptTable, load_prompts
from rmrl.data.loader import PromptLoader
from rmrl.data.tokenizer import load_tokenizer
from rmrl.errors import ConfigError
from rmrl.models.checkpoint_inspect import local_checkpoint
from rmrl.rewards.residency import Budget, EnginePlan
from rmrl.rewards.spec import RewardSpec
from rmrl.rewards.table import reward_table
from rmrl.rollout import ROLLOUT_ENGINES
from rmrl.scoring.memory import budget_of, budgets, prepare_engines
from rmrl.scoring.resolve import resolve
from rmrl.telemetry.sinks import SINKS
from rmrl.trainer import checkpoint, output_dir
from rmrl.trainer.plan import memory_plan

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A configuration without known problems, and what checking it found out. Nothing has been started or written."""

    config: Config
    device: str
    specs: tuple[RewardSpec, ...]
    engines: tuple[EnginePlan, ...]
    budget: Budget
    train_prompts: PromptTable | None
    val_prompts: PromptTable | None
    total_steps: int
    needs_reference: bool
    out_dir: Path


def check(config: Config, *, shipped_functions: Path, notice: Notice) -> Checked:
    """Raises one ConfigError with all problems of configuration, rewards and checkpoints.

    Then, one by one: OutputDirError, CheckpointError (resume_from_path), DataError, MemoryPlanError.
    """
    for line in translate(config):
        notice(line)
    device = resolve_device(config.trainer.device)
    trust = config.actor_rollout_ref.model.trust_remote_code
    rewards = resolve(config.reward, device=device, shipped_functions=shipped_functions, trust_remote_code=trust)
    specs = rewards.specs
    problems = [*config_problems(config), *_part_problems(config), *rewards.problems, *_group_problems(config, specs)]
    if problems:
        raise ConfigError(problems)
    output_dir.refuse_other_run(out_dir(config), config=config, resume_mode=config.trainer.resume_mode)
    if config.trainer.resume_mode == "resume_path":
        checkpoint.verify(Path(str(config.trainer.resume_from_path)))
    train, val = _prompts(config, notice)
    needs_reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    engines, budget = _check_memory(config, specs, device=device, needs_reference=needs_reference, notice=notice)
    return Checked(
        config=config,
        device=device,
        specs=tuple(specs),
        engines=tuple(engines),
        budget=budget,
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


def prompt_loader(config: Config, prompts: PromptTable) -> PromptLoader:
    """The order of the training prompts. Raises ConfigError when they do not fill one batch."""
    return PromptLoader(
        prompts,
        batch_size=config.data.train_batch_size,
        shuffle=config.data.shuffle,
        seed=config.trainer.seed if config.data.seed is None else config.data.seed,
    )


def _part_problems(config: Config) -> list[str]:
    """Names that a table must know, and the policy's checkpoint."""
    problems: list[str] = []
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    for key, table, name in (
        ("algorithm.adv_estimator", ADVANTAGES, config.algorithm.adv_estimator),
        ("actor_rollout_ref.actor.policy_loss", LOSSES, actor.policy_loss),
        ("actor_rollout_ref.rollout.name", ROLLOUT_ENGINES, rollout.name),
        *(("trainer.logger", SINKS, name) for name in config.trainer.logger),
    ):
        problems += _problem_of(lambda table=table, name=name: table[name], key)
    if actor.strategy in TRAIN_ENGINES:
        problems += _problem_of(lambda: TRAIN_ENGINES[actor.strategy], "actor_rollout_ref.actor.strategy")
    if config.actor_rollout_ref.model.path:
        problems += _problem_of(lambda: local_checkpoint(str(config.actor_rollout_ref.model.path)), "actor_rollout_ref.model.path")
    return problems


def _group_problems(config: Config, specs: list[RewardSpec]) -> list[str]:
    """What compares the responses of a prompt needs several of them."""
    if config.actor_rollout_ref.rollout.n > 1 or config.trainer.val_only:
        return []
    need = "compares the responses to one prompt, and actor_rollout_ref.rollout.n=1: use n >= 2"
    by_group = [f"reward '{s.name}' {need}" for s in specs if s.kind == "group" or any(_by_group(t) for t in s.transforms)]
    return [*by_group, *([f"reward.combine=lexicographic {need}"] if config.reward.combine == "lexicographic" else [])]


def _by_group(transform: Mapping[str, Any]) -> bool:
    return transform.get("by", "group" if transform["kind"] == "rank" else "") == "group"


def _problem_of(look_up: Callable[[], Any], key: str) -> list[str]:
    try:
        look_up()
    except ConfigError as error:
        return [p if key in p else f"{key}: {p}" for p in error.problems]
    except (ImportError, AttributeError) as error:
        return [f"{key}: {error}; give package.module:name of something that can be imported"]
    return []


def _prompts(config: Config, notice: Notice) -> tuple[PromptTable | None, PromptTable | None]:
    model = config.actor_rollout_ref.model
    tokenizer = load_tokenizer(
        str(config.data.tokenizer or model.tokenizer_path or model.path),
        trust_remote_code=config.data.trust_remote_code or model.trust_remote_code,
        chat_template=model.custom_chat_template,
    )
    train = load_prompts(config.data, tokenizer, split="train", notice=notice) if config.data.train_files else None
    val = load_prompts(config.data, tokenizer, split="val", notice=notice) if config.data.val_files else None
    if train is not None and not config.trainer.val_only:
        prompt_loader(config, train)
    return train, val


def _check_memory(
    config: Config, specs: list[RewardSpec], *, device: str, needs_reference: bool, notice: Notice
) -> tuple[list[EnginePlan], Budget]:
    """Prints the rewards and the plan. Raises MemoryPlanError before anything is loaded, ConfigError for pools that are not there."""
    engines = prepare_engines(specs, config.trainer, device=device)
    plan = memory_plan(config, engines, device=device, with_reference=needs_reference, **budgets(config.trainer, device=device))
    plan.check()
    notice(reward_table(specs))
    notice(plan.table())
    return engines, budget_of(plan)


def _total_steps(config: Config, train: PromptTable | None) -> int:
    per_epoch = 0 if train is None else len(train) // config.data.train_batch_size
    steps = config.trainer.total_training_steps
    return per_epoch * config.trainer.total_epochs if steps is None else steps
