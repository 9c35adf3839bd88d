"""Older key names, translated: `reward_model.*` with one list entry per reward model, and
`custom_reward_function.*`.

The modules beside this one define what each entry means. A command line without its own rule starts
from the rule for each row's data_source. `start_from_rules` adds that rule when the rows have been
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.config.compat import fold, key_table, models, overlong
from rmrl.config.compat.lists import number, unique
from rmrl.config.compat.use import needs_rule_of_source, uses_models
from rmrl.config.schema import Config, ScoreConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

_SIMILARITY = {
    "kind": "similarity",
    "path": "BAAI/bge-large-zh-v1.5",
    "function": "bge_similarity",
}
"""The reward `bge` of use_bge: similarity of the reply to the reference, with the model and the
formula of the similarity server of VeRL-with-RMs. It is off by default, since it needs an embedding
model, which no entry of the section names."""
_CUSTOM = ("path", "name", "reward_kwargs")


def translate(config: Config | ScoreConfig, kind_of: models.KindOf | None) -> list[str]:
    """Do what `rmrl.config.compat.translate` promises."""
    unknown = sorted(set(map(str, config.custom_reward_function)) - set(_CUSTOM))
    problems = [
        f"custom_reward_function.{key}: no such key{did_you_mean(key, _CUSTOM)}" for key in unknown
    ]
    if problems:
        raise ConfigError(problems)
    section = config.reward_model
    has_models = uses_models(section)
    if has_models and (config.reward.models or config.reward.weights is not None):
        raise ConfigError(
            "both reward.models or reward.weights and the older reward_model.* are given: use one"
            " of them"
        )
    if section.get("enable", True) not in (False, None):
        problems = [*key_table.problems(section), *overlong.manager_problems(section)]
    if problems:
        raise ConfigError(problems)
    notices: list[str] = []
    if config.custom_reward_function.get("path"):
        notices += _translate_function(config)
    if has_models:
        notices += _translate_models(config, kind_of or models.assume_judge)
    workers = section.get("num_workers")
    if workers is not None and config.reward.rule_workers is None:
        config.reward.rule_workers = int(workers)
    names = config.reward.models
    if needs_rule_of_source(config) or not names:
        return notices  # the overlong buffer waits for the rule, which is not known yet
    has_one_rule = bool(config.custom_reward_function.get("path")) or len(names) == 1
    return [*notices, *shape_rules(config, names[:1] if has_one_rule else [])]


def start_from_rules(config: Config | ScoreConfig, rules: Mapping[str, Sequence[str]]) -> list[str]:
    """Put the rows' data source rules in front of the models. Return the notice lines.

    `rules`: rule -> its data sources.
    """
    fold.start_from(config.reward, rules)
    shape_rules(config, list(rules))
    lines: list[str] = []
    for rule, sources in rules.items():
        for source in sources:
            lines.append(f"rows of {source or '(no data_source)'} start from the rule {rule}")
    return [*lines, _gate_notice(config)]


def _translate_function(config: Config | ScoreConfig) -> list[str]:
    """Append `custom_reward_function`'s function to the rewards, as a rule."""
    section = config.custom_reward_function
    reward = config.reward
    path = Path(str(section["path"]))
    (name,) = unique([path.stem], taken=reward.models)
    attribute = section.get("name") or "compute_score"
    rule: dict[str, Any] = {"kind": "rule", "function": f"{path}:{attribute}"}
    if section.get("reward_kwargs"):
        rule["arguments"] = dict(section["reward_kwargs"])
    if reward.weights is not None and len(reward.weights) == len(reward.models):
        reward.weights = [*reward.weights, 1.0]
    reward.models = [*reward.models, name]
    reward.specs = {**reward.specs, name: {**rule, **reward.specs.get(name, {})}}
    return [f"custom_reward_function.path={path} is now reward.models=[{','.join(reward.models)}]"]


def _translate_models(config: Config | ScoreConfig, kind_of: models.KindOf) -> list[str]:
    """Replace the rewards by `reward_model`'s models, behind the rule if there is one."""
    section = models.section_of(config, kind_of)
    reward = config.reward
    typed = config.reward_model
    if reward.models and not section.of_the_fork:
        raise ConfigError(
            "custom_reward_function.path and reward_model.enable=True are both given: type"
            " reward_model.combine_reward=True to count the model where the function gives 1, or"
            " leave out custom_reward_function to count the model alone, as verl does"
        )
    rules = list(reward.models) if typed.get("combine_reward", True) else []
    for rule in set(reward.models) - set(rules):
        reward.specs.pop(rule, None)
    terms: list[fold.Term] = []
    if typed.get("use_bge"):
        weight = number("reward_model.bge_weight", typed.get("bge_weight", 0.5))
        terms.append(fold.Term(name="bge", weight=weight, operation="add", spec=_SIMILARITY))
    names = models.names_of(section, taken=[*rules, *(term.name for term in terms)])
    for index, name in enumerate(names):
        spec = models.spec_of(section, index)
        if typed.get("use_bge"):
            # The similarity reward precedes the models but has no prompt of its own, so the
            # prompts keep the models' positions.
            spec["rm_prompt"] = str(index)
        terms.append(
            fold.Term(
                name=name,
                weight=models.weight_of(section, index),
                operation=models.operation_of(section, index),
                spec=spec,
            )
        )
    fold.place_terms(reward, terms)
    if rules:
        fold.start_from(reward, dict.fromkeys(rules, ()))
    return _notices(config, gated=bool(rules))


def _notices(config: Config | ScoreConfig, *, gated: bool) -> list[str]:
    reward = config.reward
    section = config.reward_model
    lines = [
        f"reward_model.* is now reward.models=[{','.join(reward.models)}]"
        f" reward.weights={reward.weights} reward.combine=fold"
        f" reward.combine_ops={reward.combine_ops}"
    ]
    idle = [f"reward_model.{key}" for key in key_table.idle(section)]
    if idle:
        lines.append(
            f"{', '.join(idle)}: no effect, reward models run in inference engines of their own"
            " (see reward.engine)"
        )
    if gated:
        lines.append(_gate_notice(config))
    if key_table.is_of_the_fork(section) and "use_bge" not in section:
        lines.append(
            "reward_model.use_bge is off: type reward_model.use_bge=True where the similarity to"
            " the reference counted as well (VeRL-with-RMs added 0.5 of it by default)"
        )
    return lines


def _gate_notice(config: Config | ScoreConfig) -> str:
    gated: list[str] = []
    for name in config.reward.models:
        spec = config.reward.specs.get(name)
        if isinstance(spec, dict) and "counts_at" in spec:
            gated.append(name)
    return (
        f"the fold starts from the rule's score: {', '.join(gated)} are computed where it is above"
        " 0 and count where it is 1, and are 0 elsewhere (reward.specs.<name>.gate and .counts_at;"
        " reward_model.combine_reward=False leaves the rule out)"
    )


def shape_rules(config: Config | ScoreConfig, rules: Sequence[str]) -> list[str]:
    """Apply the older section's overlong buffer to the rules. Return the notice lines."""
    tokens = config.data.max_response_length if isinstance(config, Config) else None
    entries = overlong.transform(config.reward_model, response_tokens=tokens)
    if entries is None:
        return []
    if not rules:
        raise ConfigError(
            "reward_model.reward_kwargs.overlong_buffer_cfg: several rewards are named; give it to"
            " one of them, reward.transforms.<name>={kind: overlong, max_length:"
            f" {entries['max_length']}, buffer: {entries['buffer']}, penalty:"
            f" {entries['penalty']:g}}}"
        )
    lines: list[str] = []
    transforms: dict[str, Any] = {}
    for rule in rules:
        transforms[rule] = dict(entries)
        lines.append(
            "reward_model.reward_kwargs.overlong_buffer_cfg is now"
            f" reward.transforms.{rule}={entries}"
        )
    config.reward.transforms = {**transforms, **config.reward.transforms}
    return lines
