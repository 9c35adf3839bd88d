"""The older section `reward_model` and verl's files: whether they are used at all, which is asked
without the modules that translate them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.config.schema import Config, ScoreConfig

STARTS: Mapping[str, tuple[str, ...]] = {
    "ppo_trainer": (),
    "ppo_megatron_trainer": ("actor_rollout_ref.actor.strategy=megatron",),
}
"""File that ships with verl -> the overrides in which it differs from the defaults here."""


def uses_models(section: Mapping[str, Any]) -> bool:
    """Return whether the section `reward_model` enables reward models."""
    if "enable" not in section:
        return "model" in section or "reward_function" in section
    return section["enable"] not in (False, None)


def needs_rule_of_source(config: Config | ScoreConfig) -> bool:
    """Return whether the older section's fold starts from the rule for each row's data_source:
    combine_reward is on, and no function is named."""
    section = config.reward_model
    if not uses_models(section) or config.custom_reward_function.get("path"):
        return False
    from rmrl.config.compat.key_table import is_of_the_fork

    return bool(section.get("combine_reward", is_of_the_fork(section)))
