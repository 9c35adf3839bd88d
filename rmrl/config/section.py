"""The section `reward` in its own YAML file, or in one that holds it among others, such as a run's
config.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmrl.config.compat.use import uses_models
from rmrl.config.schema import RewardConfig, ScoreConfig
from rmrl.config.typed import config_of, with_lists
from rmrl.config.yaml_file import SUFFIXES, content_of, names_function
from rmrl.errors import ConfigError

SECTION = "reward"


def is_section_file(text: str) -> bool:
    """Return whether a value of `reward=` names a file, rather than a section in --config-dir."""
    return text.endswith(SUFFIXES) or names_function(text)


def section_path(text: str, folder: Path | None) -> Path:
    """Return the file that a word names: a path, or without one a section in --config-dir, which
    lies in the folder `reward` there."""
    path = Path(text).expanduser()
    if folder is None or path.exists():
        return path
    for name in (text, *map(text.__add__, SUFFIXES)):
        if (folder / SECTION / name).is_file():
            return folder / SECTION / name
    return path


def read_section(path: Path) -> dict[str, Any]:
    """Return a file's section, or a section with the reward that the path names. Raises
    ConfigError, whose problems all begin with the path: for a file that cannot be read, unknown
    keys and wrong values, and where rewards stand in a section with older names and not in
    `reward`."""
    content = content_of(str(path))
    section = content.get(SECTION, content)
    if section is None:
        section = {}
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"{path}: `reward` is {section!r:.80}; need a mapping, e.g. reward: {{models: [gsm8k]}}"
        )
    try:
        reward = config_of({SECTION: section}, ScoreConfig).reward
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from error
    if section is not content:
        problem = _older_problem(content, reward)
        if problem:
            raise ConfigError(f"{path}: {problem}")
    return with_lists(section, RewardConfig)


def _older_problem(content: Mapping[str, Any], reward: RewardConfig) -> str:
    """Return a sentence where a section with older names has a reward that `reward` lacks; "" else.
    A run's config.yaml has both: its section `reward` holds the translation."""
    sections: list[Mapping[str, Any]] = []
    for name in ("custom_reward_function", "reward_model"):
        section = content.get(name)
        if not isinstance(section, Mapping):
            section = {}
        sections.append(section)
    custom, models = sections
    path = custom.get("path")
    functions: list[str] = [
        str(spec.get("function", "")) for spec in reward.specs.values() if isinstance(spec, Mapping)
    ]
    if path and not any(function.startswith(f"{path}:") for function in functions):
        return (
            f"saw custom_reward_function.path={path}, which is not in the section reward, the only"
            " one that is read; name it there, e.g. models: [mine] and specs: {mine: {kind: rule,"
            f" function: '{path}:compute_score'}}}}"
        )
    if uses_models(models) and not reward.models:
        return (
            "saw the section reward_model, and no reward.models; the section reward alone is read;"
            " name the models there (rmrl score with this section prints the new keys)"
        )
    return ""
