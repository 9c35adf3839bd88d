"""Columns by any name: where the values of a row stand.

    data.columns={prompt: question, reference: gold, response: answer, id: uid}

A value stands in a column, or below one: `meta.gold`, `choices.0.text`. Names may hold dots
themselves, as in `scores.Llama-3.1-8B`: the longest name that is there counts. A text on the way is
read as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rmrl.config.schema import DataConfig, ScoreDataConfig
from rmrl.errors import ConfigError, DataError
from rmrl.registry import did_you_mean

ABSENT = object()
"""No value, not even null."""
PROMPT_NAMES = ("prompt", "reference", "id", "data_source", "ability", "extra_info", "rm_prompt")
"""Names of what a prompt is made of."""
RESPONSE_NAMES = ("response", "response_tokens", "finish_reason", "opens_thinking")
_MOST_COLUMNS = 1000
_OF_ONE_REWARD = "rm_prompt_"
_OLDER_KEYS = {"prompt_key": "prompt", "response_key": "response", "reward_fn_key": "data_source"}


class ColumnNames:
    """Columns of the values that a row is read for; a name that is not given is a column itself."""

    def __init__(self, paths: Mapping[str, str] | None = None) -> None:
        """`paths`: name -> column, or path below one."""
        self.paths = dict(paths or {})
        self._name_at = {path: name for name, path in self.paths.items()}
        self._unseen = dict(self.paths)
        self._columns: dict[str, None] = {}

    def at(self, name: str) -> str:
        """Return the column of a value."""
        return self.paths.get(name, name)

    def name_of(self, column: str) -> str:
        """Return the value that stands in a column; for others the column."""
        return self._name_at.get(column, column)

    def value(self, fields: Mapping[str, Any], name: str) -> Any:
        """Return a value of a row; ABSENT without its column."""
        return at_path(fields, self.at(name))

    def in_conversation(self) -> bool:
        """Return whether prompt and response are in one column: a conversation, whose last turn is
        the response."""
        return self.at("prompt") == self.at("response")

    def see(self, fields: Mapping[str, Any]) -> None:
        """Take note of the columns of a row, for `refuse_unseen`."""
        if self._unseen:
            if len(self._columns) < _MOST_COLUMNS:
                self._columns |= dict.fromkeys(_paths_in(fields))
            for name, path in tuple(self._unseen.items()):
                if at_path(fields, path) is not ABSENT:
                    del self._unseen[name]

    def refuse_unseen(self, names: Collection[str], key: str = "data.columns") -> None:
        """Raise DataError where the columns of some of `names` were in no row that was read."""
        problems: list[str] = []
        for name, path in self._unseen.items():
            if self._columns and (name in names or name.startswith(_OF_ONE_REWARD)):
                hint = did_you_mean(path, list(self._columns))
                problems.append(f"{key}.{name}={path}: no row has such a column{hint}")
        if problems:
            raise DataError("\n".join(problems))


DEFAULT_NAMES = ColumnNames()


def column_names(settings: DataConfig | ScoreDataConfig) -> ColumnNames:
    """Return the names of `data.columns`, and of the older keys (`data.prompt_key` ...). Raises
    ConfigError with every name that no value has."""
    names = (*PROMPT_NAMES, *RESPONSE_NAMES)
    paths: dict[str, str] = {}
    problems: list[str] = []
    for key, name in _OLDER_KEYS.items():
        column = getattr(settings, key, name)
        if column != name:
            paths[name] = column
            if name in settings.columns:
                problems.append(
                    f"data.columns.{name} and data.{key} both name a column: leave one of them out"
                )
    for name, column in settings.columns.items():
        paths[name] = str(column)
        if name not in names and not name.startswith(_OF_ONE_REWARD):
            problems.append(
                f"data.columns.{name}: no value of that name{did_you_mean(name, names)}; the names"
                f" are {', '.join(names)}"
            )
    if problems:
        raise ConfigError(problems)
    return ColumnNames(paths)


def at_path(values: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column, or below it: "judgments.0.decision"; ABSENT where there is
    none."""
    if path in values:
        return values[path]
    return _below(values, path.split("."))


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column as `at_path` does; None where it is absent."""
    value = at_path(values, path)
    if value is ABSENT:
        return None
    return value


def _paths_in(values: Mapping[str, Any], parent: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{parent}{name}"
        if isinstance(value, Mapping):
            yield from _paths_in(value, f"{parent}{name}.")


def _below(node: Any, parts: Sequence[str]) -> Any:
    if not parts:
        return node
    if isinstance(node, str):
        # A cell of a csv file.
        node = _parsed(node)
    if isinstance(node, Mapping):
        for end in range(len(parts), 0, -1):
            name = ".".join(parts[:end])
            if name in node:
                value = _below(node[name], parts[end:])
                if value is not ABSENT:
                    return value
    is_list = isinstance(node, Sequence) and not isinstance(node, str)
    if is_list and parts[0].isdecimal() and int(parts[0]) < len(node):
        return _below(node[int(parts[0])], parts[1:])
    return ABSENT


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
