"""Older key names, translated to ours: `reward_model.*` with one list entry per reward model, and
`custom_reward_function.*`.

What each entry means stands in `rmrl.config.older`. A line that names no rule of its own starts
from the rule of each row's data_source; the rows are read later, so that rule is put in by
`start_from_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.config.older import fold, leaves, models, overlong, similarity
from rmrl.config.older.lists import unique
from rmrl.config.schema import Config, ScoreConfig
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

_CUSTOM = ("path", "name", "reward_kwargs")


def translate(
    config: Config | ScoreConfig, *, kind_of: models.KindOf = models.a_judge
) -> list[str]:
    """Move older names into `config.reward` in place; returns one notice line per section
    translated.

    `kind_of` reads the kind of a checkpoint whose reward_model_type is not typed. Raises
    ConfigError when both older and new names are given, lists differ in length, or an older entry
    is unknown or has no counterpart.
    """
    _check_custom(config.custom_reward_function)
    asked = asks_for_models(config.reward_model)
    if asked and (config.reward.models or config.reward.weights is not None):
        raise ConfigError(
            "both reward.models or reward.weights and the older reward_model.* are given: use one"
            " of them"
        )
    if config.reward_model.get("enable", True) not in (False, None):
        _check_leaves(config.reward_model)
    notices = _custom_function(config) if config.custom_reward_function.get("path") else []
    if asked:
        notices += _reward_model(config, kind_of)
    return [*notices, *_managers(config)]


def asks_for_models(section: Mapping[str, Any]) -> bool:
    """Whether the section names reward models that are to be used."""
    enabled = section.get("enable")
    if enabled is None and "enable" not in section:
        return any(key in section for key in ("model", "reward_function"))
    return enabled not in (False, None)


def needs_rule_of_source(config: Config | ScoreConfig) -> bool:
    """Whether the fold of the older section starts from the rule of each row's data_source:
    combine_reward, and no function named."""
    section = config.reward_model
    if not asks_for_models(section) or config.custom_reward_function.get("path"):
        return False
    return bool(section.get("combine_reward", leaves.is_of_the_fork(section)))


def start_from_rules(config: Config | ScoreConfig, rules: Mapping[str, Sequence[str]]) -> list[str]:
    """Put the rules of the rows' data sources ahead of the models; returns the notice lines.
    `rules`: rule -> its data sources."""
    fold.start_from(config.reward, rules)
    _shape_rule(config, list(rules))
    lines = [
        f"rows of {source or '(no data_source)'} start from the rule {rule}"
        for rule, each in rules.items()
        for source in each
    ]
    return [*lines, _counting(config)]


def _check_custom(given: Mapping[str, Any]) -> None:
    unknown = sorted(set(map(str, given)) - set(_CUSTOM))
    if unknown:
        raise ConfigError(
            [
                f"custom_reward_function.{key}: no such key{did_you_mean(key, _CUSTOM)}"
                for key in unknown
            ]
        )


def _check_leaves(section: Mapping[str, Any]) -> None:
    problems = [*leaves.problems(section), *overlong.manager_problems(section)]
    if problems:
        raise ConfigError(problems)


def _custom_function(config: Config | ScoreConfig) -> list[str]:
    given = config.custom_reward_function
    path = Path(str(given["path"]))
    (name,) = unique([path.stem], taken=config.reward.models)
    attribute = given.get("name") or "compute_score"
    arguments = {"arguments": dict(given["reward_kwargs"])} if given.get("reward_kwargs") else {}
    if config.reward.weights is not None and len(config.reward.weights) == len(
        config.reward.models
    ):
        config.reward.weights = [*config.reward.weights, 1.0]
    config.reward.models = [*config.reward.models, name]
    rule = {"kind": "rule", "function": f"{path}:{attribute}", **arguments}
    typed = config.reward.specs.get(name, {})
    config.reward.specs = {**config.reward.specs, name: {**rule, **typed}}
    return [
        f"custom_reward_function.path={path} is now"
        f" reward.models=[{','.join(config.reward.models)}]"
    ]


def _reward_model(config: Config | ScoreConfig, kind_of: models.KindOf) -> list[str]:
    section, reward, typed = models.section_of(config, kind_of), config.reward, config.reward_model
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
    if similarity.asked(typed):
        terms.append(
            fold.Term(
                name=similarity.NAME,
                weight=similarity.weight(typed),
                operation="add",
                spec=similarity.spec(),
            )
        )
    for index, name in enumerate(
        models.names_of(section, taken=[*rules, *(term.name for term in terms)])
    ):
        entries = models.spec_of(section, index)
        if similarity.asked(typed):
            entries["rm_prompt"] = str(
                index
            )  # the similarity reward stands ahead of the models and reads none
        weight = models.weight_of(section, index)
        terms.append(
            fold.Term(
                name=name,
                weight=weight,
                operation=models.operation_of(section, index),
                spec=entries,
            )
        )
    fold.place_terms(reward, terms)
    if rules:
        fold.start_from(reward, dict.fromkeys(rules, ()))
    return _notices(config, counting=bool(rules))


def _notices(config: Config | ScoreConfig, *, counting: bool) -> list[str]:
    reward, section = config.reward, config.reward_model
    lines = [
        f"reward_model.* is now reward.models=[{','.join(reward.models)}]"
        f" reward.weights={reward.weights} reward.combine=fold"
        f" reward.combine_ops={reward.combine_ops}"
    ]
    idle = [f"reward_model.{key}" for key in leaves.idle(section)]
    if idle:
        lines.append(
            f"{', '.join(idle)}: no effect, reward models run in inference engines of their own"
            " (see reward.engine)"
        )
    if counting:
        lines.append(_counting(config))
    if leaves.is_of_the_fork(section) and "use_bge" not in section:
        lines.append(
            "reward_model.use_bge is off: type reward_model.use_bge=True where the similarity to"
            " the reference counted as well (VeRL-with-RMs added 0.5 of it by default)"
        )
    return lines


def _counting(config: Config | ScoreConfig) -> str:
    gated = [name for name in config.reward.models if _is_gated(config.reward.specs.get(name))]
    return (
        f"the fold starts from the rule's score: {', '.join(gated)} are asked where it is above 0"
        " and count where it is 1, and are 0 elsewhere (reward.specs.<name>.gate and .counts_at;"
        " reward_model.combine_reward=False leaves the rule out)"
    )


def _is_gated(spec: Any) -> bool:
    return isinstance(spec, dict) and "counts_at" in spec


def _managers(config: Config | ScoreConfig) -> list[str]:
    """What belongs to rules whether or not there are models: the overlong buffer and the number of
    workers."""
    workers = config.reward_model.get("num_workers")
    if workers is not None and config.reward.rule_workers is None:
        config.reward.rule_workers = int(workers)
    if needs_rule_of_source(config) or not config.reward.models:
        return []  # the rule is not known yet
    first = config.reward.models[:1]
    return _shape_rule(
        config,
        (
            first
            if config.custom_reward_function.get("path") or len(config.reward.models) == 1
            else []
        ),
    )


def shape_rule(config: Config | ScoreConfig, rules: Sequence[str]) -> list[str]:
    """Apply the overlong buffer of the older section to rules that were chosen later; returns the
    notice lines."""
    return _shape_rule(config, rules)


def _shape_rule(config: Config | ScoreConfig, rules: Sequence[str]) -> list[str]:
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
    config.reward.transforms = {
        **{rule: dict(entries) for rule in rules},
        **config.reward.transforms,
    }
    return [
        f"reward_model.reward_kwargs.overlong_buffer_cfg is now reward.transforms.{rule}={entries}"
        for rule in rules
    ]
