"""A command line's words: overrides, a user's own configuration files, and flags of Hydra."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmrl.errors import ConfigError
from rmrl.files import DATA_SUFFIXES

FOLDER = ("--config-dir", "-cd")
PATH = ("--config-path", "-cp")
NAME = ("--config-name", "-cn")
_PATHS = ("hf://", "/", "./", "../", "~")
_COLUMN_KEYS = (
    "data.columns=",
    "data.columns.",
    "data.prompt_key=",
    "data.response_key=",
    "data.reward_fn_key=",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """What stands on a command line, sorted."""

    overrides: list[str]
    """Overrides, and flags of Hydra that print or sweep, such as --cfg job or --multirun."""
    folder: Path | None = None
    """--config-dir: folder of the user's own YAML files."""
    name: str | None = None
    """--config-name: the file there that the configuration starts from."""

    @property
    def flags(self) -> set[str]:
        """The flags among the words, without their values."""
        flags: set[str] = {
            word.partition("=")[0] for word in self.overrides if word.startswith("-")
        }
        return flags

    def without_flags(self) -> CommandLine:
        """Return the line with its overrides alone."""
        overrides = [
            word
            for before, word in zip(["", *self.overrides], self.overrides, strict=False)
            if not is_flag(word, before)
        ]
        return replace(self, overrides=overrides)

    def with_files(self, overrides: Sequence[str]) -> list[str]:
        """Return the words that Hydra's own parser reads as this line with other overrides."""
        words = list(overrides)
        if self.folder is not None:
            words += [FOLDER[0], str(self.folder)]
        if self.name is not None:
            words += [NAME[0], self.name]
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One override on a command line."""

    key: str
    """Dotted, without the + in front."""
    value: Any
    """The value that Hydra reads, None for a sweep or a deletion."""
    text: str
    """The override as it was typed, its value in quotes where Hydra needs them."""
    plain: bool = True
    """False for a sweep (`a=1,2`) and a deletion (`~a`), which have no single value."""
    origin: int = 0
    """Position on the command line; entries of one mapping share it."""


def command_line(arguments: Sequence[str]) -> CommandLine:
    """Sort a command line's words. --config-path, for which training has another meaning
    (`rmrl.config.compat.files`), is another name for --config-dir."""
    folder, rest = pop_flag(arguments, FOLDER + PATH)
    name, rest = pop_flag(rest, NAME)
    return CommandLine(
        # Every command runs without --run.
        overrides=[word for word in rest if word not in ("--run", "-r")],
        folder=None if folder is None else Path(folder).expanduser(),
        name=name,
    )


def malformed(word: str, reason: str) -> str:
    """Return a sentence on a word that is no override, for Hydra's `reason`."""
    key, equals, value = word.partition("=")
    if equals and value.count("[") + value.count("{") > value.count("]") + value.count("}"):
        return (
            f"{word}: the list or mapping does not end here, as a shell cuts it at its spaces;"
            f" leave them out, {key}=[a,b], or quote the word, '{key}=[a, b]'"
        )
    if not equals and word.endswith(("]", "}")):
        return f"{word}: the rest of a list or mapping that was cut at a space"
    if not equals and word.replace(".", "").replace("_", "").isalnum():
        reason = f"its value is missing, {word}=<value>"
        if "." not in word:
            reason += f" (a reward of this name is reward.models=[{word}])"
    return (
        f"{word}: {reason}; overrides look like section.key=value, lists like [a,b] or, with other"
        " letters and marks, ['ü','a=b']"
    )


def names_data(value: object) -> bool:
    """Return whether a value is data, and no file of a configuration: a file's or folder's path, a
    data set's split on a hub, or a list of them."""
    if isinstance(value, list):
        return all(map(names_data, value))
    text = str(value)
    return text.endswith(DATA_SUFFIXES) or text.startswith(_PATHS)


def names_columns(word: str) -> bool:
    """Return whether a word says where a row's values stand: data.columns={prompt: question},
    data.columns.prompt=question, or an older key."""
    return word.startswith(_COLUMN_KEYS)


def is_flag(word: str, before: str) -> bool:
    """Return whether a word is a Hydra flag or, behind one, its value."""
    return word.startswith("-") or (before.startswith("-") and "=" not in word)


def pop_flag(arguments: Sequence[str], names: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return (the flag's value or None, the other arguments), for `--flag value` and
    `--flag=value`. Raises ConfigError for a flag without a value."""
    value: str | None = None
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, text = word.partition("=")
        if flag in names:
            value = text if equals else next(words, "")
            if not value or value.startswith("-"):
                raise ConfigError(f"{flag}: its value is missing; give {flag}=<value>")
        else:
            rest.append(word)
    return value, rest


def add_file_flags(parser: argparse.ArgumentParser) -> None:
    """Add --config-dir and --config-name to an entry that has its own flags, and --config-path,
    which some training command lines have."""
    parser.add_argument(
        *FOLDER, metavar="DIR", help="folder of your own YAML files; reward=NAME is DIR/reward/NAME"
    )
    parser.add_argument(*NAME, metavar="NAME", help="the file there to start from")
    parser.add_argument(*PATH, metavar="DIR", help=argparse.SUPPRESS)


def file_flags(options: argparse.Namespace) -> list[str]:
    """Return the words for the flags that `add_file_flags` added."""
    words: list[str] = []
    for names in (FOLDER, PATH, NAME):
        value = getattr(options, names[0].lstrip("-").replace("-", "_"))
        if value is not None:
            words += [names[0], value]
    return words
