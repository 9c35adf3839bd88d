"""Other trainers' keys: verl's command lines, and VeRL-with-RMs' sections `reward_model` and
`custom_reward_function`.

This file decides whether a command line or a configuration has such keys. The modules beside it,
which translate them, are imported only then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from rmrl.config.command_line import NAME, PATH, Setting, pop_flag
from rmrl.config.compat.use import STARTS
from rmrl.config.schema import Config, ScoreConfig
from rmrl.config.typed import annotation, is_free, unknown_key

GROUPS = frozenset(
    {"actor", "critic", "ref", "rollout", "data", "model", "reward", "reward_model"}
    | {"engine", "optim", "distillation"}
)
"""verl's groups of configuration files."""
_CORRECTION = "algorithm.rollout_correction"
SHARED: Mapping[str, tuple[str, ...]] = {
    "actor_rollout_ref.rollout.name": ("vllm", "sglang", "hf"),
    "algorithm.filter_groups.metric": ("acc", "score", "reward"),
    "trainer.device": ("auto", "cuda", "cpu"),
    f"{_CORRECTION}.rollout_rs": ("token", "sequence", "geometric"),
    f"{_CORRECTION}.rollout_rs_threshold": (),
    f"{_CORRECTION}.rollout_is_threshold": (),
    f"{_CORRECTION}.bypass_mode": (),
    "data.gen_batch_size": (),
}
"""Keys of rmrl that take more values in verl -> the values that mean the same in both."""


def own_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the command line with --config-path and --config-name replaced by the file's
    overrides, in front of the others.

    Without --config-path (or with --config-dir) these flags are passed to Hydra, except for verl's
    file names. Raises ConfigError for a missing file, and for a file whose defaults are neither
    verl's nor beside it.
    """
    folder, rest = pop_flag(arguments, PATH)
    name, without_name = pop_flag(rest, NAME)
    stem = (name or "").removesuffix(".yaml").removesuffix(".yml")
    if folder is None and stem not in STARTS:
        return list(arguments)
    from rmrl.config.compat.files import overrides_of

    return [*overrides_of(folder, stem), *without_name]


def may_be_of_verl(setting: Setting) -> bool:
    """Return whether verl's key table may change a training override: for a key that the schema
    lacks, for a section given as one value, and for values that rmrl's own key lacks."""
    key = setting.key
    if unknown_key(Config, key) is not None:
        return True
    if key in SHARED:
        is_number = isinstance(setting.value, int | float) and key.endswith("_threshold")
        return not is_number and setting.value not in SHARED[key]
    annotated = annotation(Config, key)
    if is_free(annotated):
        return key.startswith(("actor_rollout_ref.", "critic."))
    is_inner_section = dataclasses.is_dataclass(annotated) and "." in key
    return is_inner_section or isinstance(setting.value, Mapping)


def translate(
    config: Config | ScoreConfig, *, kind_of: Callable[[str], str] | None = None
) -> list[str]:
    """Move older names into `config.reward` in place. Return one notice line per section.

    `kind_of` reads a checkpoint's kind where reward_model_type is not set. None: a judge. Raises
    ConfigError when both older and new names are set, lists differ in length, or an older entry is
    unknown or has no counterpart.
    """
    if not (config.reward_model or config.custom_reward_function):
        return []
    from rmrl.config.compat import reward_section

    return reward_section.translate(config, kind_of)


def start_from_rules(config: Config | ScoreConfig, rules: Mapping[str, Sequence[str]]) -> list[str]:
    """Put the rows' data source rules in front of the older section's models. Return the notice
    lines.

    `rules`: rule -> its data sources.
    """
    from rmrl.config.compat import reward_section

    return reward_section.start_from_rules(config, rules)


def shape_rules(config: Config | ScoreConfig, rules: Sequence[str]) -> list[str]:
    """Apply the older section's overlong buffer to the rules. Return the notice lines."""
    if not config.reward_model:
        return []
    from rmrl.config.compat import reward_section

    return reward_section.shape_rules(config, rules)
