"""Composition of a command line into typed objects by Hydra, with all problems reported at once.

No other module below the entries imports hydra.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rmrl.config.schema import (
    CalibrateConfig,
    CompareConfig,
    Config,
    EvalConfig,
    ScoreConfig,
    ServeConfig,
)
from rmrl.config.verl import Setting, apply
from rmrl.errors import ConfigError, first_line
from rmrl.registry import did_you_mean

_log = logging.getLogger(__name__)

Root = TypeVar("Root", Config, ScoreConfig, EvalConfig, CalibrateConfig, CompareConfig, ServeConfig)

RECIPE = "recipe"
"""configs/recipe/<name>.yaml, the keys that make an algorithm: `+recipe=dapo`, several as
`+recipe=[dapo,tis]`. Later overrides win."""
CONFIG_NAMES: dict[type, str] = {
    Config: "ppo_trainer",
    ScoreConfig: "score",
    EvalConfig: "eval",
    CalibrateConfig: "calibrate",
    CompareConfig: "compare",
    ServeConfig: "serve",
}
"""Root dataclass -> the file in configs/ that its composition starts from."""

_GROUPS_OF_VERL = (
    "actor",
    "critic",
    "ref",
    "rollout",
    "data",
    "model",
    "reward",
    "reward_model",
    "engine",
    "optim",
    "distillation",
)


def shipped(folder: str) -> Path:
    """Return a folder that ships with rmrl ("configs", "reward_functions"): beside the package in a
    checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_shipped" / folder
    return inside if inside.is_dir() else package.parent / folder


@lru_cache(maxsize=1)
def register() -> None:
    """Register the dataclasses with Hydra under the names that the files in configs/ start from.

    Once per process: Hydra copies its stored nodes, and reading the dataclasses takes longer than
    composing.
    """
    ConfigStore.instance().store(name="rmrl_defaults", node=Config)
    ConfigStore.instance().store(name="rmrl_score_defaults", node=ScoreConfig)
    ConfigStore.instance().store(name="rmrl_eval_defaults", node=EvalConfig)
    ConfigStore.instance().store(name="rmrl_calibrate_defaults", node=CalibrateConfig)
    ConfigStore.instance().store(name="rmrl_compare_defaults", node=CompareConfig)
    ConfigStore.instance().store(name="rmrl_serve_defaults", node=ServeConfig)


def compose_config(overrides: Sequence[str], root: type[Root] = Config) -> Root:
    """Compose a typed configuration from Hydra overrides such as "trainer.seed=3". Keys without
    effect are logged, one line per reason.

    Raises ConfigError with every problem: unknown keys (with the nearest known one), refused keys
    (with what to use), wrong types.
    """
    register()
    overrides = normalise(overrides, root)
    name = CONFIG_NAMES[root]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(shipped("configs")), version_base="1.3", job_name="rmrl"):
        try:
            return to_config(compose(name, overrides=overrides), root)
        except (HydraException, OmegaConfBaseException) as error:
            problems = [_value_problem(text, name) for text in overrides]
            raise ConfigError(list(filter(None, problems)) or [first_line(error)]) from error


def config_of(content: Mapping[str, Any], root: type[Root]) -> Root:
    """Build a typed configuration from sections of plain Python values; absent keys have defaults.

    Raises ConfigError with every unknown key (with the nearest known one), or for wrong types.
    """
    problems = list(_unknown_keys(root, content))
    if problems:
        raise ConfigError(problems)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(root), OmegaConf.create(dict(content)))
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from error
    assert isinstance(merged, DictConfig)
    return to_config(merged, root)


def _unknown_keys(
    root: type, content: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[str]:
    for name, value in content.items():
        key = ".".join((*path, str(name)))
        problem = unknown_key(root, key)
        if problem:
            yield problem
        elif isinstance(value, Mapping) and not _is_free(_annotation(root, key)):
            yield from _unknown_keys(root, value, (*path, str(name)))


def normalise(overrides: Sequence[str], root: type = Config) -> list[str]:
    """Return overrides in the form that Hydra requires: keys of verl replaced by those of rmrl,
    entries of free-form sections with "++".

    Raises ConfigError with every unknown, refused or malformed one. Flags ("--cfg") pass through.
    Keys without effect are logged.
    """
    settings, problems = parse(overrides)
    of_verl = [setting for setting in settings if _may_be_of_verl(setting, root)]
    applied = apply(of_verl)
    problems += applied.problems
    normalised: list[str] = []
    for text in applied.converted:
        normalised += _check_override(text, root, problems)
    origins = {setting.origin for setting in settings}
    verl_origins = {setting.origin for setting in of_verl}
    for origin, text in enumerate(overrides):
        if origin not in origins:
            normalised.append(text)  # a flag
            continue
        for override in applied.passed_on(origin) if origin in verl_origins else [text]:
            normalised += _check_override(override, root, problems)
    if problems:
        raise ConfigError(problems)
    for line in applied.notices:
        _log.info(line)
    return normalised


def parse(overrides: Sequence[str]) -> tuple[list[Setting], list[str]]:
    """Parse overrides into (settings, sentences for malformed ones). Flags are in neither."""
    settings: list[Setting] = []
    problems: list[str] = []
    for origin, (before, text) in enumerate(zip(["", *overrides], overrides, strict=False)):
        if text.startswith("-") or (before.startswith("-") and "=" not in text):
            continue
        override, problem = _parse(text)
        if override is None:
            problems.append(problem)
            continue
        key = override.key_or_group
        if override.package is not None:
            key += f"@{override.package}"
        plain = not override.is_sweep_override() and not override.is_delete()
        value = override.value() if plain else None
        settings.append(Setting(key=key, value=value, text=text, plain=plain, origin=origin))
    return settings, problems


def run_command(
    arguments: Sequence[str], run: Callable[[Root], None], root: type[Root] = Config
) -> None:
    """Call `run` with the configuration of a command line, which may have Hydra's own flags: --cfg
    job prints the configuration, --help the keys, --multirun sweeps. Errors as `compose_config`."""
    if any(argument.startswith("-") for argument in arguments):
        _run_with_hydra(normalise(arguments, root), run, root)
    else:
        run(compose_config(arguments, root))


def _run_with_hydra(
    arguments: Sequence[str], run: Callable[[Root], None], root: type[Root]
) -> None:
    register()

    @hydra.main(
        version_base="1.3", config_path=str(shipped("configs")), config_name=CONFIG_NAMES[root]
    )
    def command(composed: DictConfig) -> None:
        run(to_config(composed, root))

    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        command()
    finally:
        sys.argv = before


def to_config(composed: DictConfig, root: type[Root] = Config) -> Root:
    """Convert from OmegaConf to plain dataclasses. Raises ConfigError for missing values and wrong
    types."""
    try:
        typed = OmegaConf.to_object(composed)
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from error
    assert isinstance(typed, root)
    return typed


def to_yaml(config: Config | ScoreConfig | EvalConfig) -> str:
    """Return the resolved configuration as YAML, every key with its value."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def _value_problem(override: str, config_name: str) -> str | None:
    """Sentence on an override that cannot be composed by itself; None where it can."""
    try:
        compose(config_name, overrides=[override])
    except MissingConfigException as error:
        missing = Path(str(error.missing_cfg_file))
        files = (shipped("configs") / missing.parent).glob("*.yaml")
        names = error.options or [file.stem for file in files]
        return (
            f"{override.lstrip('+')}: nothing named"
            f" '{missing.name}'{did_you_mean(missing.name, list(names))}"
        )
    except (HydraException, OmegaConfBaseException) as error:
        return f"{override.lstrip('+')}: {first_line(error.__cause__ or error)}"
    return None


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Override | None, str]:
    """Return (override, "") or (None, the problem)."""
    try:
        return OverridesParser.create().parse_override(text), ""
    except HydraException as error:
        problem = (
            f"{text}: {first_line(error)}; overrides look like section.key=value, lists like [a,b]"
        )
        return None, problem


def _may_be_of_verl(setting: Setting, root: type) -> bool:
    """Return whether to look the key up in the table of verl's keys: for commands other than
    training only a key that their own configuration lacks."""
    if setting.key == RECIPE or re.split(r"[/.]", setting.key)[0] == "hydra":
        return False
    return root is Config or unknown_key(root, setting.key) is not None


def _check_override(text: str, root: type, problems: list[str]) -> list[str]:
    """Return the override to pass on, [] where `problems` gets a sentence on it instead."""
    override, problem = _parse(text)
    if override is None:
        problems.append(problem)
        return []
    key = override.key_or_group
    if key == RECIPE and root is Config:
        return [text if text.startswith(("+", "~")) else f"+{text}"]
    if key == "hydra" or key.startswith(("hydra.", "hydra/")):
        return [text]
    if override.package is not None:
        if key in _GROUPS_OF_VERL:
            problems.append(
                f"{text}: verl's groups of configuration files do not exist here; give the keys"
                " that the group sets"
            )
            return []
        return [text]
    problem = unknown_key(root, key)
    if problem:
        problems.append(problem)
        return []
    annotation = _annotation(root, key)
    free = _is_free(annotation)
    if not free and not dataclasses.is_dataclass(annotation):
        text = text.lstrip("+")  # verl adds keys that the schema has here
    value = override.value()
    if (
        _takes_list(annotation)
        and not override.is_sweep_override()
        and value is not None
        and not isinstance(value, list)
    ):
        text = f"{text.partition('=')[0]}=[{text.partition('=')[2]}]"
    return ["++" + text if text.startswith(key) and free else text]


def unknown_key(schema: type, key: str) -> str | None:
    """Return a sentence when `key` (dotted) is not a field of the dataclass tree, None when it is.
    Free-form dict fields accept any key below them."""
    node: Any = schema
    path: list[str] = []
    for part in key.split("."):
        if not dataclasses.is_dataclass(node):
            if node is Any or typing.get_origin(node) is dict:
                return None
            return f"{key}: '{'.'.join(path)}' is a value, it has no entry '{part}'"
        fields = typing.get_type_hints(node)
        if part not in fields:
            where = ".".join(path) or "the top level"
            return f"{key}: no key '{part}' in {where}{did_you_mean(part, list(fields))}"
        node = fields[part]
        path.append(part)
    return None


def _annotation(schema: type, key: str) -> Any:
    """Return the annotated type of a known key; None for an entry of a free-form section."""
    node: Any = schema
    for part in key.split("."):
        if not dataclasses.is_dataclass(node):
            return None
        node = typing.get_type_hints(node)[part]
    return node


def _is_free(annotation: Any) -> bool:
    """Return whether a key is a free-form dict or lies inside one (annotation None)."""
    return annotation is None or typing.get_origin(annotation) is dict


def _takes_list(annotation: Any) -> bool:
    """Return whether a field takes a list, so that a single value is short for a list of one."""
    for part in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(part) is list:
            return True
    return False
