"""Check the whole `reward` section: names, kinds, combination, budgets. Nothing is started."""

from __future__ import annotations

from pathlib import Path

from rmrl.cluster.devices import cores
from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.models.checkpoint_inspect import checkpoint_kind
from rmrl.rewards.calibration.check import calibration_problems
from rmrl.rewards.combine import combine_problems
from rmrl.rewards.combine.steps import step_problems
from rmrl.rewards.entries.presets import name_presets
from rmrl.rewards.entries.resolve import Resolved, Surroundings, functions_dirs, resolve_rewards
from rmrl.rewards.entries.section import Policy
from rmrl.rewards.session.missing import budget_problems
from rmrl.rewards.transforms import Chain, chain_of


def resolve(
    config: RewardConfig,
    *,
    device: str,
    shipped_functions: Path,
    trust_remote_code: bool,
    policy: Policy | None = None,
) -> Resolved:
    """Return the resolved specs and all problems. A name `preset:NAME` becomes NAME in `config`.

    `shipped_functions` is the last folder searched for drop-ins. `policy` is the model that trains
    beside the rewards.
    """
    name_presets(config)
    problems = [
        *combine_problems(config, config.models),
        *budget_problems(config.max_missing, config.max_missing_by_cause),
    ]
    try:
        folders = functions_dirs(
            config.functions_dir, working_dir=Path.cwd(), shipped_dir=shipped_functions
        )
    except ConfigError as error:
        return Resolved(problems=[*problems, *error.problems])
    surroundings = Surroundings(
        device=device,
        threads=cores(),
        functions_dirs=folders,
        trust_remote_code=trust_remote_code,
        policy=policy,
    )
    resolved = resolve_rewards(config, surroundings)
    if not problems and not resolved.problems:
        chains: list[Chain] = [
            chain_of(spec.transforms, f"reward '{spec.name}' transform") for spec in resolved.specs
        ]
        problems += step_problems(resolved.specs, chains, settings=config)
        problems += calibration_problems(resolved.specs)
    return Resolved(
        specs=resolved.specs, problems=list(dict.fromkeys([*problems, *resolved.problems]))
    )


def kind_of(path: str) -> str:
    """Return the kind for a checkpoint that older keys name. Return "generative" where the
    checkpoint cannot be read, which resolution reports."""
    try:
        return checkpoint_kind(path)
    except ConfigError:
        return "generative"
