"""Everything about a run that can be found wrong before a process is started or a file is written.
Knows no Ray."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from rmrl.algorithms import (
    ADVANTAGES,
    LOSSES,
)
from rmrl.assemble.memory import HOST_MEMORY, budget_of, budgets, prepare_engines
from rmrl.assemble.preflight import package_problem, reward_preflight
from rmrl.assemble.resolve import kind_of, resolve
from rmrl.backends import TRAIN_ENGINES
from rmrl.cluster.device_survey import find_devices
from rmrl.cluster.devices import Devices
from rmrl.cluster.memory_plan import MemoryPlan
from rmrl.config.check import config_problems
from rmrl.config.compat import translate
from rmrl.config.schema import Config, CriticConfig
from rmrl.data.dataset import PromptTable, iterate_rows, load_prompts, make_prompt
from rmrl.data.loader import PromptLoader
from rmrl.data.rows import file_list, read_rows
from rmrl.errors import ConfigError, Problems
from rmrl.inference.rollout import ROLLOUT_ENGINES
from rmrl.models.checkpoint_inspect import (
    local_checkpoint,
    max_positions,
    no_writer,
    read_config,
)
from rmrl.registry import Registry
from rmrl.rewards.calibration import audited
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.resolve import Resolved
from rmrl.rewards.residency import Budget, EnginePlan
from rmrl.rewards.session.items import OTHER_ANSWER, ResponseRow, made_up_response
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.telemetry.sinks import SINKS
from rmrl.tokenizer import load_tokenizer
from rmrl.trainer import checkpoint, output_dir
from rmrl.trainer.best import best_problems
from rmrl.trainer.check_algorithm import (
    algorithm_problems,
    critic_settings,
    needs_critic,
    needs_reference,
)
from rmrl.trainer.check_environment import check_opens, environment_problems, task_problems
from rmrl.trainer.check_layout import layout_problems
from rmrl.trainer.check_place import (
    fill_processes,
    finished_step,
    process_problems,
    published_weights_advice,
)
from rmrl.trainer.check_reads import reads_problems
from rmrl.trainer.check_rollout import rollout_problems
from rmrl.trainer.check_strategy import (
    packing_advice,
    processor_advice,
    rounding_advice,
    strategy_problems,
)
from rmrl.trainer.check_teachers import teacher_advice, teacher_problems
from rmrl.trainer.cost import say_cost
from rmrl.trainer.device_defaults import choose_shares, fill_training, standing_choices
from rmrl.trainer.fitting import fitting_advice
from rmrl.trainer.plan import Extras, memory_plan
from rmrl.trainer.policy_judge import on_all_devices, policy_of
from rmrl.trainer.rules_by_source import choose_rules
from rmrl.trainer.step_estimate import announced
from rmrl.trainer.transport import chosen_transport

_log = logging.getLogger(__name__)


_FIRST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A configuration without known problems, and what checking it found out. Nothing has been
    started or written."""

    config: Config
    device: str
    specs: tuple[RewardSpec, ...]
    engines: tuple[EnginePlan, ...]
    budget: Budget
    train_prompts: PromptTable | None
    val_prompts: PromptTable | None
    total_steps: int
    needs_reference: bool
    critic: CriticConfig
    """Every null replaced by the actor's setting."""
    needs_critic: bool
    out_dir: Path
    weight_transport: str = "file"
    """rollout.weight_transport with "auto" decided: file, ipc or nccl."""
    finished_step: int | None = None
    """Step of the newest checkpoint in the output folder where no step is left to train."""


def check(config: Config, *, shipped_functions: Path, needs_out: bool = True) -> Checked:
    """Find all that is wrong before a process is started. The rows are read last.

    Raises ConfigError with every problem of a round and of the folders; one alone its own error
    (OutputDirError, CheckpointError, DataError, MemoryPlanError). Without `needs_out` the output
    folder is not looked at.
    """
    problems = Problems()
    devices, translated = _settle(config, problems)
    device = devices.kind
    rewards = Resolved()
    if translated:
        rewards = resolve(
            config.reward,
            device=device,
            shipped_functions=shipped_functions,
            trust_remote_code=config.actor_rollout_ref.model.trust_remote_code,
            policy=policy_of(config, devices),
        )
    _first_round(config, rewards, problems, devices=devices, needs_out=needs_out)
    for line in [*_advice(config, device), *teacher_advice(config, rewards.specs)]:
        _log.warning(line)
    extras = Extras(
        reference=needs_reference(config),
        critic=critic_settings(config) if needs_critic(config) else None,
    )
    train = val = None
    engines: list[EnginePlan] = []
    plan = MemoryPlan((), {})
    with problems.collecting():
        train, val = _prompts(config, rewards.specs)
    with problems.collecting():
        engines, plan = _check_memory(config, rewards.specs, devices, extras=extras)
    _folders(config, problems, needs_out=needs_out)
    problems.raise_any()
    total_steps = config.trainer.total_training_steps
    if total_steps is None:
        total_steps = len(train or ()) // config.data.train_batch_size * config.trainer.total_epochs
    folder = out_dir(config)
    transport = chosen_transport(config, plan, device=device)
    say_cost(config, train, device=device, reference=extras.reference)
    gpu = devices.gpu_name()
    if line := announced(config, engines, rewards.specs, gpu=gpu, transport=transport):
        _log.info(line)
    return Checked(
        config=config,
        device=device,
        specs=tuple(rewards.specs),
        engines=tuple(engines),
        budget=budget_of(plan),
        train_prompts=train,
        val_prompts=val,
        total_steps=total_steps,
        needs_reference=extras.reference,
        critic=critic_settings(config),
        needs_critic=extras.critic is not None,
        out_dir=folder,
        weight_transport=transport,
        finished_step=finished_step(config, folder, total_steps=total_steps) if needs_out else None,
    )


def _settle(config: Config, problems: Problems) -> tuple[Devices, bool]:
    """Translate older names, choose rules and fill in the number of processes, in place. Return the
    devices, without a machine where their settings have a problem, and whether all names were
    translated."""
    with problems.collecting():
        for line in translate(config, kind_of=kind_of):
            _log.info(line)
    with problems.collecting():
        for line in choose_rules(config):
            _log.info(line)
    translated = not problems
    devices = Devices(kind=config.trainer.device, machines=())
    with problems.collecting():
        devices = find_devices(config.trainer.device, config.ray_kwargs.ray_init)
        fill_processes(config, devices)
    return devices, translated


def _first_round(
    config: Config,
    rewards: Resolved,
    problems: Problems,
    *,
    devices: Devices,
    needs_out: bool,
) -> None:
    """Raise every problem that the configuration, the checkpoints' headers and the first rows show,
    and with them those of the folders, which alone raise nothing."""
    device = devices.kind
    problems.add(
        [
            *config_problems(config),
            *_settings_problems(config, device),
            *_part_problems(config, device),
            *process_problems(config, devices),
            *rewards.problems,
            *algorithm_problems(config, rewards.specs),
            *teacher_problems(config, rewards.specs),
            *environment_problems(config, rewards.specs),
            *best_problems(config, [spec.name for spec in rewards.specs]),
        ]
    )
    rows: list[ResponseRow] = []
    columns: tuple[str, ...] = ()
    with problems.collecting():
        rows += _first_rows(config, "train")
        if rows:
            files = file_list(config.data.train_files, "data.train_files")
            columns = tuple(next(read_rows(files[0])).fields)
    with problems.collecting():
        rows += _first_rows(config, "val")
    problems.add(task_problems(config, rows))
    if not problems:
        with problems.collecting():
            check_opens(config)
    problems.add(reward_preflight(rewards.specs, rows, device=device, columns=columns))
    audited.report_audits(config.reward, rewards.specs)
    if config.trainer.require_audit:
        problems.add(audited.required(config.reward, rewards.specs))
    if problems:
        _folders(config, problems, needs_out=needs_out)
        problems.raise_any()


def _folders(config: Config, problems: Problems, *, needs_out: bool) -> None:
    """Add problems of the output folder and of the checkpoint to start from."""
    if needs_out:
        with problems.collecting():
            output_dir.refuse_other_run(
                out_dir(config), config=config, resume_mode=config.trainer.resume_mode
            )
    if config.trainer.resume_mode == "resume_path" and config.trainer.resume_from_path:
        with problems.collecting():
            checkpoint.verify(Path(str(config.trainer.resume_from_path)))


def out_dir(config: Config) -> Path:
    """Return the run's folder: trainer.default_local_dir, else runs/<project>/<experiment>."""
    trainer = config.trainer
    return Path(
        trainer.default_local_dir or Path("runs") / trainer.project_name / trainer.experiment_name
    )


def prompt_loader(config: Config, prompts: PromptTable) -> PromptLoader:
    """Return the training prompts in order. Raises ConfigError when they do not fill one batch."""
    return PromptLoader(
        prompts,
        batch_size=config.data.train_batch_size,
        shuffle=config.data.shuffle,
        seed=config.trainer.seed if config.data.seed is None else config.data.seed,
    )


def _settings_problems(config: Config, device: str) -> list[str]:
    """Return settings that the chosen strategy and rollout engine do not read or refuse. Unknown
    names are reported by another check."""
    problems: list[str] = []
    with suppress(ConfigError, ImportError, AttributeError):
        problems += strategy_problems(config, device=device)
    with suppress(ConfigError, ImportError, AttributeError):
        problems += rollout_problems(config, device=device)
    return problems


def _part_problems(config: Config, device: str) -> list[str]:
    """Return problems of names that must be in a table, and of the policy's checkpoint."""
    problems: list[str] = []
    actor = config.actor_rollout_ref.actor
    rollout = config.actor_rollout_ref.rollout
    strategies = {
        "actor_rollout_ref.actor.strategy": actor.strategy,
        "critic.strategy": config.critic.strategy,
    }
    for key, table, name in (
        ("algorithm.adv_estimator", ADVANTAGES, config.algorithm.adv_estimator),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", LOSSES, actor.policy_loss.loss_mode),
        ("actor_rollout_ref.rollout.name", ROLLOUT_ENGINES, rollout.name),
        *(("trainer.logger", SINKS, name) for name in config.trainer.logger),
        *((key, TRAIN_ENGINES, name) for key, name in strategies.items() if name is not None),
    ):
        problems += table.problems(name, key)
    problems += _package_problems(config, device)
    checkpoints = {"actor_rollout_ref.model.path": config.actor_rollout_ref.model.path}
    if needs_critic(config):
        checkpoints["critic.model.path"] = config.critic.model.path
    unreadable: list[str] = []
    for key, path in checkpoints.items():
        if path:
            try:
                local_checkpoint(str(path), key)
            except ConfigError as error:
                unreadable += error.problems
    problems += unreadable
    if not problems and all(checkpoints.values()):
        problems += _vocabulary_problems(checkpoints)
    if not problems and config.actor_rollout_ref.model.path:
        problems += layout_problems(
            config, critic_settings(config) if needs_critic(config) else None, device=device
        )
    if not unreadable and config.actor_rollout_ref.model.path:
        problems += _policy_problems(config)
        problems += _length_problems(config)
    return problems


def _package_problems(config: Config, device: str) -> Iterator[str]:
    """Yield packages of trackers and the rollout engine that are not installed."""
    rollout = config.actor_rollout_ref.rollout
    parts: list[tuple[str, Registry[Any], str]] = [
        ("trainer.logger", SINKS, name) for name in config.trainer.logger
    ]
    if "base_url" not in (rollout.engine_kwargs.get(rollout.name) or {}):
        parts.append(("actor_rollout_ref.rollout.name", ROLLOUT_ENGINES, rollout.name))
    for key, table, name in parts:
        # A name that is not in the table is a problem of its own.
        with suppress(ConfigError, ImportError, AttributeError):
            problem = package_problem(key, name, table[name], device=device)
            if problem:
                yield problem


def _policy_problems(config: Config) -> Iterator[str]:
    """Yield a problem where the policy is a classifier or an encoder."""
    path = str(config.actor_rollout_ref.model.path)
    name = no_writer(path)
    if name:
        yield (
            f"actor_rollout_ref.model.path='{path}' is a {name}, which writes no text, and a policy"
            " has to: give a *ForCausalLM checkpoint; to score with this one, type"
            f" reward.models=[scorer] reward.specs.scorer.path={path}"
        )


def _length_problems(config: Config) -> Iterator[str]:
    """Yield a problem where prompt and response together exceed the policy's positions."""
    path = str(config.actor_rollout_ref.model.path)
    data = config.data
    longest = max_positions(path)
    needed = data.max_prompt_length + data.max_response_length
    if needed > longest:
        yield (
            f"data.max_prompt_length={data.max_prompt_length} +"
            f" data.max_response_length={data.max_response_length} = {needed} tokens, and '{path}'"
            f" was made for {longest} (max_position_embeddings): lower one of them"
        )


def _vocabulary_problems(checkpoints: Mapping[str, str | None]) -> list[str]:
    """Return a problem where the critic's vocabulary is not the policy's."""
    sizes = {key: read_config(str(path)).get("vocab_size") for key, path in checkpoints.items()}
    if len(set(sizes.values())) == 1:
        return []
    (_, policy), (_, critic) = sizes.items()
    return [
        f"critic.model.path has a vocabulary of {critic} tokens and the policy one of {policy}: the"
        " critic reads the policy's tokens, so it needs the same tokenizer; leave"
        " critic.model.path out to start from the policy"
    ]


def _advice(config: Config, device: str) -> Iterator[str]:
    """Yield settings that are allowed and rarely intended."""
    yield from packing_advice(config, device=device)
    yield from processor_advice(config, device=device)
    yield from rounding_advice(config)
    val = config.actor_rollout_ref.rollout.val_kwargs
    algorithm = config.algorithm
    if config.data.val_files and val.n > 1 and not (val.do_sample and val.temperature > 0):
        yield (
            f"rollout.val_kwargs.n={val.n} without sampling: the responses to a prompt are all the"
            " same; add val_kwargs.do_sample=True val_kwargs.temperature=1.0"
        )
    if config.trainer.max_staleness > 0 and algorithm.rollout_correction.rollout_is is None:
        yield (
            f"trainer.max_staleness={config.trainer.max_staleness} trains on samples of older"
            " weights; algorithm.rollout_correction.rollout_is=token weighs them by how far the"
            " policy has moved"
        )


def _first_rows(config: Config, split: Literal["train", "val"]) -> list[ResponseRow]:
    """Return the first rows of a split with a response to try rewards on: the reference answer, or
    a sentence where there is none.

    Raises DataError as reading the files does.
    """
    files = config.data.train_files if split == "train" else config.data.val_files
    if not files:
        return []
    rows: list[ResponseRow] = []
    for group, row in enumerate(islice(iterate_rows(config.data, split=split), _FIRST_ROWS)):
        prompt = make_prompt(row, ())
        text = prompt.ground_truth or OTHER_ANSWER
        rows.append(made_up_response(prompt, text, group))
    return rows


def _prompts(
    config: Config, specs: Sequence[RewardSpec]
) -> tuple[PromptTable | None, PromptTable | None]:
    """Return the prompts of both splits. Raises ConfigError where the tokenizer does not fit the
    prompts or what the rewards read, DataError."""
    model = config.actor_rollout_ref.model
    tokenizer = load_tokenizer(
        str(config.data.tokenizer or model.tokenizer_path or model.path),
        trust_remote_code=config.data.trust_remote_code or model.trust_remote_code,
        chat_template=model.custom_chat_template,
    )
    problems = reads_problems(specs, tokenizer)
    if problems:
        raise ConfigError(problems)
    train: PromptTable | None = None
    val: PromptTable | None = None
    if config.data.train_files:
        train = load_prompts(config.data, tokenizer, split="train")
    if config.data.val_files:
        val = load_prompts(config.data, tokenizer, split="val")
    if train is not None and not config.trainer.val_only:
        prompt_loader(config, train)
    return train, val


def _check_memory(
    config: Config, specs: list[RewardSpec], devices: Devices, *, extras: Extras
) -> tuple[list[EnginePlan], MemoryPlan]:
    """Return the engines and the memory plan, and log it with the rewards. Raises MemoryPlanError
    before anything is loaded, ConfigError for pools that do not exist."""

    def plan_with(
        engines: list[EnginePlan], config: Config = config, extras: Extras = extras
    ) -> MemoryPlan:
        return memory_plan(
            config,
            engines,
            device=devices.kind,
            extras=extras,
            gpu_bytes=devices.total_bytes(),
            **budgets(config.trainer, devices),
        )

    policy_host_bytes = plan_with([]).peak("score", HOST_MEMORY)
    engines = prepare_engines(specs, config.trainer, devices, policy_host_bytes=policy_host_bytes)
    engines = on_all_devices(engines, config)
    lines = fill_training(
        config, extras.critic, device=devices.kind, plan=partial(plan_with, engines)
    )
    engines, shares = choose_shares(
        config, engines, plan_with(engines), gpu_bytes=devices.total_bytes()
    )
    if devices.kind == "cuda":
        lines += standing_choices(config, engines)
    for line in [*shares, *lines]:
        _log.info(line)
    plan = plan_with(engines)
    plan.check(
        lambda: fitting_advice(
            config, extras, device=devices.kind, plan=partial(plan_with, engines)
        )
    )
    for line in published_weights_advice(config, devices):
        _log.warning(line)
    _log.info(reward_table(specs))
    _log.info(plan.table())
    return engines, plan
