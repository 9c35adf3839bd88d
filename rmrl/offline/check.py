"""Everything about offline scoring that can be found wrong before an engine is started or a file is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmrl.cluster.devices import resolve_device
from rmrl.config.check_reward import reward_problems
from rmrl.config.legacy import translate
from rmrl.config.schema import ScoreConfig
from rmrl.data.rows import file_list
from rmrl.data.write import refuse_existing
from rmrl.errors import ConfigError
from rmrl.rewards.residency import Budget, EnginePlan
from rmrl.rewards.spec import RewardSpec
from rmrl.rewards.table import reward_table
from rmrl.scoring.memory import budget_of, budgets, prepare_engines, scoring_plan
from rmrl.scoring.resolve import resolve

_LOOKS_AT_LENGTH = ("overlong", "length", "cosine_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedScoring:
    """A configuration without known problems."""

    config: ScoreConfig
    device: str
    specs: tuple[RewardSpec, ...]
    files: tuple[Path, ...]
    out: Path | None
    engines: tuple[EnginePlan, ...]
    budget: Budget


def check_scoring(
    config: ScoreConfig, *, shipped_functions: Path, notice: Callable[[str], None], needs_out: bool = True
) -> CheckedScoring:
    """Raises one ConfigError with all problems; then DataError for files, MemoryPlanError."""
    for line in translate(config):
        notice(line)
    device = resolve_device(config.trainer.device)
    trust = config.trainer.trust_remote_code
    rewards = resolve(config.reward, device=device, shipped_functions=shipped_functions, trust_remote_code=trust)
    problems = [*reward_problems(config), *rewards.problems, *_own_problems(config, rewards.specs, needs_out=needs_out)]
    if problems:
        raise ConfigError(problems)
    files = tuple(file_list(config.data.files, "data.files"))
    out = Path(config.out).expanduser() if config.out else None
    if out is not None:
        refuse_existing(out, overwrite=config.overwrite)
    engines = prepare_engines(rewards.specs, config.trainer, device=device)
    plan = scoring_plan(engines, **budgets(config.trainer, device=device))
    plan.check()
    notice(reward_table(rewards.specs))
    notice(plan.table())
    return CheckedScoring(
        config=config, device=device, specs=tuple(rewards.specs), files=files, out=out, engines=tuple(engines), budget=budget_of(plan)
    )


def _own_problems(config: ScoreConfig, specs: list[RewardSpec], *, needs_out: bool) -> list[str]:
    problems = []
    if config.data.files is None:
        problems.append("data.files is empty: give a parquet or jsonl file of rows with responses, e.g. data.files=responses.parquet")
    if needs_out and not config.out:
        problems.append("out is empty: give the file to write, e.g. out=scored.parquet")
    if config.data.batch_size < 1:
        problems.append(f"data.batch_size={config.data.batch_size}: must be greater than 0")
    if config.reward.weight_schedules:
        problems.append("reward.weight_schedules follow the steps of training: give reward.weights here")
    by_length = [s.name for s in specs if any(t["kind"] in _LOOKS_AT_LENGTH for t in s.transforms)]
    if by_length and config.data.tokenizer is None:
        problems.append(
            f"the transforms of {', '.join(by_length)} look at response lengths: give data.tokenizer=<the policy's folder or hub id>"
        )
    return problems
