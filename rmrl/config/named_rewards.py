"""Rewards that a configuration names by their functions: by a file, or in Python by the function
itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.config.yaml_file import names_function
from rmrl.errors import ConfigError

Functions = dict[str, Callable[..., Any]]
"""Reward's name -> the function that a program gives for it."""


def parted(content: Mapping[str, Any]) -> tuple[Mapping[str, Any], Functions]:
    """Return a configuration with names alone in `models`, `by_source` and `specs`, and the
    functions that stood there. A function in a list of models is the reward of its own name.

    Raises ConfigError for a function without such a name, and for two of one name.
    """
    reward = content.get("reward")
    if not isinstance(reward, Mapping):
        return content, {}
    functions: Functions = {}
    names_only = dict(reward)
    if "models" in reward:
        names_only["models"] = _names(reward["models"], functions)
    by_source = reward.get("by_source")
    if isinstance(by_source, Mapping):
        names_only["by_source"] = entries = dict(by_source)
        for source, entry in by_source.items():
            if isinstance(entry, Mapping) and "models" in entry:
                entries[source] = {**entry, "models": _names(entry["models"], functions)}
    specs = reward.get("specs")
    if isinstance(specs, Mapping):
        names_only["specs"] = sections = dict(specs)
        for name, section in specs.items():
            function = section.get("function") if isinstance(section, Mapping) else None
            if callable(function):
                sections[name] = {**section, "function": ""}
            if callable(function) or (function and name in functions):
                _add(functions, str(name), function)
    return {**content, "reward": names_only}, functions


def add_functions(reward: RewardConfig, functions: Functions) -> None:
    """Give the functions that `parted` took away to their rewards, in place."""
    for name, function in functions.items():
        section = reward.specs.get(name) or {}
        if isinstance(section, Mapping):
            reward.specs = {**reward.specs, name: {**section, "function": function}}


def _names(models: Any, functions: Functions) -> Any:
    if callable(models):
        models = [models]
    if not isinstance(models, list | tuple):
        return models
    names: list[Any] = []
    for position, model in enumerate(models):
        if callable(model):
            name = _name(model, f"reward.models[{position}]")
            _add(functions, name, model)
            model = name
        names.append(model)
    return names


def _name(function: Callable[..., Any], where: str) -> str:
    original: Any = function
    while isinstance(original, functools.partial):
        original = original.func
    name = getattr(original, "__name__", type(original).__name__)
    if not name.isidentifier():
        raise ConfigError(
            f"{where}: saw {function!r:.80}, which has no name to report its scores under: give"
            " {'models': ['short'], 'specs': {'short': {'function': ...}}}"
        )
    return name


def _add(functions: Functions, name: str, function: Callable[..., Any]) -> None:
    if functions.setdefault(name, function) is not function:
        raise ConfigError(
            f"two functions are called '{name}'; give each a name of its own: {{'models':"
            f" ['{name}', '{name}_2'], 'specs': {{'{name}_2': {{'function': {name}_2}}}}}}"
        )


def name_files(reward: RewardConfig) -> None:
    """Name each reward after its file, in place, in `models` and `by_source`: rules.py is the
    reward "rules", and rules.py:short or rules.py::short the reward "short", with the entry
    `function` in `specs`. A file whose name another reward has stays as it is."""
    lists: list[list[Any]] = [reward.models]
    for entry in reward.by_source.values():
        if isinstance(entry, dict) and isinstance(entry.get("models"), list):
            lists.append(entry["models"])
    names = {str(name) for models in lists for name in models}
    for models in lists:
        for position, model in enumerate(models):
            models[position] = _named(model, reward, names)


def _named(model: Any, reward: RewardConfig, names: set[str]) -> Any:
    function = str(model).replace("::", ":")
    if not names_function(function):
        return model
    path, _, attribute = function.partition(":")
    name = Path(path).stem
    if attribute not in ("", "compute_score"):
        name = attribute
    section = reward.specs.get(name) or {}
    if not isinstance(section, Mapping):
        return model
    if section.get("function", "" if name in names else function) != function:
        return model
    reward.specs = {**reward.specs, name: {"function": function, **section}}
    return name
