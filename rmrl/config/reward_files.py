"""Rewards that a configuration names by the files of their functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.config.yaml_file import names_function


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
