"""Rules by data source, for configurations that name no reward, in training and offline scoring."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from rmrl.config.compat import shape_rules, start_from_rules
from rmrl.config.compat.use import needs_rule_of_source
from rmrl.config.schema import Config, ScoreConfig
from rmrl.errors import ConfigError

RULES: dict[str, str] = {
    "openai/gsm8k": "gsm8k",
    "hendrycks/math": "math_verify",
    "lighteval/MATH": "math_verify",
    "DigitalLearningGmbH/MATH-lighteval": "math_verify",
    "HuggingFaceH4/MATH-500": "math_verify",
    "GAIR/LIMR": "math_verify",
    "math": "math_verify",
    "math_dapo": "math_verify",
    "math_dapo_reasoning": "math_verify",
    "aime*": "math_verify",
    "numina_*": "math_verify",
    "searchR1_*": "exact_match",
    "rider": "rider_format",
}
"""data_source -> file of reward_functions/. A key that ends in * stands for all sources that begin
like it."""


def rule_of(source: str) -> str | None:
    """Return the rule for a data_source, None where there is none."""
    return next((RULES[key] for key in RULES if fnmatchcase(source, key)), None)


def rules_are_needed(config: Config | ScoreConfig) -> bool:
    """Return whether the configuration names no reward, or older names start from the rule for each
    row's data_source."""
    return needs_rule_of_source(config) or not (config.reward.models or config.reward.by_source)


def choose_rules_of(config: Config | ScoreConfig, sources: Iterable[str]) -> list[str]:
    """Add the rules for `sources` to config.reward, in place. Return the notice lines. Raises
    ConfigError for sources without a rule."""
    distinct = sorted(set(sources))
    rules = {source: rule for source in distinct if (rule := rule_of(source)) is not None}
    unknown = [source or "(none)" for source in distinct if source not in rules]
    older = needs_rule_of_source(config)
    without_rule = ", ".join(unknown[:5])
    available = ", ".join(RULES)
    if unknown and older:
        raise ConfigError(
            f"reward_model.combine_reward is on (its default) and rows of data_source"
            f" {without_rule} have no rule (there is one for {available}): name yours with"
            " custom_reward_function.path=<file>, or let the models alone count with"
            " reward_model.combine_reward=False"
        )
    if unknown:
        raise ConfigError(
            f"rows of data_source {without_rule} have no rule of their own (there is one for"
            f" {available}): name a reward for them; for programs with tests that is"
            " reward.models=[code] reward.specs.code.kind=code"
        )
    names = sorted(set(rules.values()))
    if older:
        sources_of: dict[str, list[str]] = {name: [] for name in names}
        for source in distinct:
            sources_of[rules[source]].append(source)
        return start_from_rules(config, sources_of)
    if len(names) == 1:
        config.reward.models = names
    lines: list[str] = []
    for source in distinct:
        rule = rules[source]
        if len(names) > 1:
            config.reward.by_source[source] = {"models": [rule]}
        lines.append(f"no reward is named: rows of {source} are scored by the rule {rule}")
    return [*lines, *shape_rules(config, names)]
