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
    reward.models = _named(reward.models, reward)
    for entry in reward.by_source.values():
        if isinstance(entry, dict) and isinstance(entry.get("models"), list):
            entry["models"] = _named(entry["models"], reward)


def _named(models: list[Any], reward: RewardConfig) -> list[Any]:
    names = list(models)
    for position, model in enumerate(models):
        function = str(model).replace("::", ":")
        if not names_function(function):
            continue
        path, _, attribute = function.partition(":")
        name = Path(path).stem
        if attribute not in ("", "compute_score"):
            name = attribute
        section = reward.specs.get(name) or {}
        if name in names or not isinstance(section, Mapping):
            continue
        if section.get("function", function) == function:
            reward.specs = {**reward.specs, name: {"function": function, **section}}
            names[position] = name
    return names
