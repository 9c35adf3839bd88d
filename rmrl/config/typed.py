"""Plain values and composed configurations as the schema's dataclasses, with a sentence for every
key that these lack."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rmrl.config.named_rewards import add_functions, name_files, parted
from rmrl.config.plain_checks import keys_of, look_up
from rmrl.config.schema import (
    AuditConfig,
    CalibrateConfig,
    CompareConfig,
    Config,
    EvalConfig,
    RewardConfig,
    RewardTrainingConfig,
    ScoreConfig,
    ServeConfig,
)
from rmrl.errors import ConfigError, first_line
from rmrl.registry import did_you_mean

_NEEDED = {
    "reward.models": (
        "give the names of rewards, e.g. reward.models=[judge], and their entries below"
        " reward.specs.<name>"
    )
}
"""Key of a list -> what to give in it, where that is more than plain values."""

Root = TypeVar(
    "Root",
    Config,
    ScoreConfig,
    EvalConfig,
    CalibrateConfig,
    CompareConfig,
    AuditConfig,
    ServeConfig,
    RewardTrainingConfig,
)


def config_of(content: Mapping[str, Any], root: type[Root]) -> Root:
    """Build a typed configuration from sections in plain Python values, or with functions as rules;
    absent keys have defaults.

    Raises ConfigError with every unknown key (with the nearest known one), or for wrong types.
    """
    content, functions = parted(content)
    problems = list(_unknown_keys(root, content))
    if problems:
        raise ConfigError(problems)
    try:
        values = OmegaConf.create(with_lists(content, root))
        merged = OmegaConf.merge(OmegaConf.structured(root), values)
    except OmegaConfBaseException as error:
        raise ConfigError(_with_key(error)) from error
    assert isinstance(merged, DictConfig)
    config = to_config(merged, root)
    if functions:
        add_functions(config.reward, functions)  # type: ignore[union-attr]
    return config


def to_config(composed: DictConfig, root: type[Root]) -> Root:
    """Convert from OmegaConf to plain dataclasses, with rewards named by their files. Raises
    ConfigError for missing values and wrong types."""
    try:
        typed = OmegaConf.to_object(composed)
    except OmegaConfBaseException as error:
        raise ConfigError(_with_key(error)) from error
    assert isinstance(typed, root)
    problems = list(_nested_values(typed))
    if problems:
        raise ConfigError(problems)
    reward = getattr(typed, "reward", None)
    if isinstance(reward, RewardConfig):
        name_files(reward)
    return typed


def _nested_values(config: object) -> Iterator[str]:
    """Yield a sentence for each list that holds more than plain values, which OmegaConf lets
    pass."""
    for key, _ in keys_of(config):
        value = look_up(config, key)
        if not isinstance(value, list) or not takes_list(annotation(type(config), key)):
            continue
        for each in value:
            if isinstance(each, list | dict):
                needed = _NEEDED.get(key, "give plain values")
                yield f"{key}: saw {each!r:.80} in the list; {needed}"


def _with_key(error: OmegaConfBaseException) -> str:
    key = error.full_key
    return f"{key}: {first_line(error)}" if key else first_line(error)


def _unknown_keys(
    root: type, content: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[str]:
    for name, value in content.items():
        key = ".".join((*path, str(name)))
        problem = unknown_key(root, key, value)
        if problem:
            yield problem
        elif isinstance(value, Mapping) and not is_free(annotation(root, key)):
            yield from _unknown_keys(root, value, (*path, str(name)))


def unknown_key(schema: type, key: str, value: Any = None) -> str | None:
    """Return a sentence when `key` (dotted) is not a field in the dataclass tree, or is to be a
    mapping and `value` is none. Return None otherwise. Free-form dict fields accept any key below
    them."""
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
            hint = did_you_mean(part, list(fields))
            homes = [
                f"{name}.{part}"
                for name, kind in fields.items()
                if part in getattr(kind, "__dataclass_fields__", ())
            ]
            if homes:
                hint = f"; did you mean {' or '.join(homes)}?"
            return f"{key}: no key '{part}' in {where}{hint}"
        node = fields[part]
        path.append(part)
    is_other = isinstance(value, str | int | float | list) and not str(value).startswith("${")
    if is_other and typing.get_origin(node) is dict:
        return f"{key}={value}: give names with their values, e.g. {key}={{name: value}}"
    return None


def annotation(schema: type, key: str) -> Any:
    """Return a known key's annotated type, None for an entry in a free-form section."""
    node: Any = schema
    for part in key.split("."):
        if not dataclasses.is_dataclass(node):
            return None
        node = typing.get_type_hints(node)[part]
    return node


def is_free(annotated: Any) -> bool:
    """Return whether a key is a free-form dict or lies inside one (annotation None)."""
    return annotated is None or typing.get_origin(annotated) is dict


def with_lists(content: Mapping[str, Any], schema: type) -> dict[str, Any]:
    """Return sections in which a single value stands in a list, where its key takes one."""
    values = dict(content)
    for name, value in content.items():
        annotated = annotation(schema, str(name))
        if isinstance(value, Mapping):
            if dataclasses.is_dataclass(annotated):
                values[name] = with_lists(value, annotated)  # type: ignore[arg-type]
        elif takes_list(annotated) and isinstance(value, str | int | float):
            values[name] = [value]
    return values


def takes_list(annotated: Any) -> bool:
    """Return whether a field takes a list, so that a single value is short for a list with it
    alone."""
    parts = (annotated, *typing.get_args(annotated))
    return any(typing.get_origin(part) is list for part in parts)
