"""Files on a command line without a key: rows.jsonl is data, reward.yaml or rules.py a reward."""

from __future__ import annotations

from collections.abc import Sequence

from rmrl.config.command_line import is_flag, names_data
from rmrl.config.overrides import quoted
from rmrl.config.section import SECTION, is_section_file
from rmrl.config.yaml_file import names_function
from rmrl.errors import ConfigError
from rmrl.files import is_there

SCORED, TRAINED = "data.files", "data.train_files"
"""Keys that data files without one have."""
_MODELS = f"{SECTION}.models"


def keyed(words: Sequence[str], data_key: str) -> list[str]:
    """Return the words with keys for those that have none: rules, and where rows are scored
    checkpoints' folders, are `reward.models`, a YAML file is `reward`, and data files are
    `data_key`. Raises ConfigError where another word names the same."""
    models: list[str] = []
    files: list[str] = []
    others: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        is_bare = "=" not in word and not is_flag(word, before)
        is_model = is_bare and data_key == SCORED and is_there(f"{word}/config.json")
        if is_bare and (is_model or names_function(word)):
            models.append(word)
        elif is_bare and is_section_file(word):
            others.append(f"{SECTION}={word}")
        elif is_bare and names_data(word):
            files.append(word)
        else:
            others.append(word)
    models_word = _one_list(models, _MODELS, (SECTION, _MODELS), others)
    return [*others, *models_word, *_one_list(files, data_key, ("data", data_key), others)]


def _one_list(
    names: Sequence[str], key: str, same: Sequence[str], others: Sequence[str]
) -> list[str]:
    if not names:
        return []
    for word in others:
        if word.partition("=")[0].lstrip("+") in same:
            raise ConfigError(
                f"{word} says the same as the words without a key ({', '.join(names)}); give one"
                f" list, {key}=[{','.join(names)},...]"
            )
    return [f"{key}=[{','.join(map(quoted, names))}]"]
