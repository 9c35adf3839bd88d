"""Files on a command line without a key: rows.jsonl is data, reward.yaml or rules.py a reward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmrl.config.command_line import is_flag, names_data
from rmrl.config.overrides import quoted
from rmrl.config.section import SECTION, is_section_file
from rmrl.errors import ConfigError

SCORED, TRAINED = "data.files", "data.train_files"
"""Keys that data files without one have."""


def keyed(words: Sequence[str], data_key: str) -> list[str]:
    """Return the words, with `reward=` before a file of rewards, `reward.models=` before a
    checkpoint's folder where rows are scored, and all data files behind the others as one list,
    `data_key`=[...]. Raises ConfigError where another word names data, too."""
    files: list[str] = []
    others: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        is_bare = "=" not in word and not is_flag(word, before)
        if is_bare and is_section_file(word):
            others.append(f"{SECTION}={word}")
        elif is_bare and data_key == SCORED and (Path(word) / "config.json").is_file():
            others.append(f"{SECTION}.models=[{quoted(word)}]")
        elif is_bare and names_data(word):
            files.append(word)
        else:
            others.append(word)
    if not files:
        return others
    for word in others:
        if word.partition("=")[0].lstrip("+") in ("data", data_key):
            raise ConfigError(
                f"{word} and the files without a key ({', '.join(files)}) both name data; give one"
                f" list, {data_key}=[a.jsonl,b.jsonl]"
            )
    return [*others, f"{data_key}=[{','.join(map(quoted, files))}]"]
