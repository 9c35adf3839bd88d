"""Columns by any name: where a row's values stand.

    data.columns={prompt: question, reference: gold, response: answer, id: uid}

A value stands in a column, or below one: `meta.gold`, `choices.0.text`. Names may hold dots
themselves, as in `scores.Llama-3.1-8B`: the longest name that is there counts. A text on the way is
read as JSON.

The names travel with a scored file: a column `rmrl_columns` has them as JSON in each row.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rmrl.config.schema import DataConfig, ScoreDataConfig
from rmrl.data.json_text import parsed
from rmrl.data.problems import FieldError, shown
from rmrl.errors import ConfigError, DataError
from rmrl.registry import did_you_mean

ABSENT = object()
"""No value, not even null."""
PROMPT_NAMES = ("prompt", "reference", "id", "data_source", "ability", "extra_info", "rm_prompt")
"""Names of what a prompt is made of."""
RESPONSE_NAMES = ("response", "response_tokens", "finish_reason", "opens_thinking")
NAMES_COLUMN = "rmrl_columns"
"""Column of a scored file with its columns' names, where they are not the usual ones."""
_MOST_COLUMNS = 1000
_OF_ONE_REWARD = "rm_prompt_"
_CHANGES_MEANING = ("reference", "id")
"""Names that have an effect even where they name the column of the same name."""
_OLDER_KEYS = {"prompt_key": "prompt", "response_key": "response", "reward_fn_key": "data_source"}


class ColumnNames:
    """The columns whose values a row is read for. A name that is not given is a column itself."""

    def __init__(self, paths: Mapping[str, str] | None = None) -> None:
        """`paths`: name -> column, or path below one."""
        self.paths = dict(paths or {})
        self._name_at = {path: name for name, path in self.paths.items()}
        self._unseen = dict(self.paths)
        self._columns: dict[str, None] = {}

    def at(self, name: str) -> str:
        """Return a value's column."""
        return self.paths.get(name, name)

    def name_of(self, column: str) -> str:
        """Return the value that stands in a column; for others the column."""
        return self._name_at.get(column, column)

    def value(self, fields: Mapping[str, Any], name: str) -> Any:
        """Return a row's value; ABSENT without its column."""
        return at_path(fields, self.paths.get(name, name))

    def given(self, fields: Mapping[str, Any], name: str) -> Any:
        """Return a row's value, None without its column."""
        return value_at(fields, self.paths.get(name, name))

    def has(self, fields: Mapping[str, Any], names: Iterable[str]) -> bool:
        """Return whether a row has all of these values' columns, which may be null."""
        return all(self.value(fields, name) is not ABSENT for name in names)

    def with_others(self, names: ColumnNames) -> ColumnNames:
        """Return these names, `names` put in their place."""
        return ColumnNames({**self.paths, **names.paths})

    def as_text(self) -> str:
        """Return the names that are not the usual ones as JSON, for `names_in`."""
        unusual: dict[str, str] = {
            name: path
            for name, path in self.paths.items()
            if path != name or name in _CHANGES_MEANING
        }
        return json.dumps(unusual, ensure_ascii=False)

    @property
    def some_unseen(self) -> bool:
        """Whether some name's column was in no row yet."""
        return bool(self._unseen)

    def in_conversation(self) -> bool:
        """Return whether prompt and response are in one column: a conversation, whose last turn is
        the response."""
        return self.at("prompt") == self.at("response")

    def see(self, fields: Mapping[str, Any]) -> None:
        """Note a row's columns, for `refuse_unseen`."""
        if self._unseen:
            if len(self._columns) < _MOST_COLUMNS:
                self._columns |= dict.fromkeys(_paths_in(fields))
            for name, path in tuple(self._unseen.items()):
                if at_path(fields, path) is not ABSENT:
                    del self._unseen[name]

    def refuse_unseen(
        self,
        names: Collection[str],
        key: str = "data.columns",
        *,
        typed: Mapping[str, str] | None = None,
    ) -> None:
        """Raise DataError where some columns in `names` were in no row that was read.
        `typed`: name -> key that was typed, where it is not `key` with the name."""
        problems: list[str] = []
        for name, path in self._unseen.items():
            if self._columns and (name in names or name.startswith(_OF_ONE_REWARD)):
                hint = did_you_mean(path, list(self._columns))
                typed_key = (typed or {}).get(name, f"{key}.{name}")
                problems.append(f"{typed_key}={path}: no row has such a column{hint}")
        if problems:
            raise DataError("\n".join(problems))


DEFAULT_NAMES = ColumnNames()
_OTHER_NAMES = {
    "prompt": ("question", "problem", "query", "instruction", "input", "inputs"),
    "response": (
        "completions",
        "output",
        "outputs",
        "generation",
        "generations",
        "generated_text",
        "model_output",
        "prediction",
        "answer",
    ),
}
"""Names that other programs give a column, the most likely first."""


def name_it(fields: Mapping[str, Any], name: str, column: str) -> str:
    """Return what to type where a row has no `column` for a value: the column that looks like
    it, where there is one."""
    key = f"data.columns.{name}"
    close = [other for other in _OTHER_NAMES.get(name, ()) if other in fields]
    close = difflib.get_close_matches(column, list(fields), n=1, cutoff=0.6) or close
    if close:
        return f"did you mean {key}={close[0]}?"
    return f"name the column that holds it: {key}=..."


def column_names(settings: DataConfig | ScoreDataConfig) -> ColumnNames:
    """Return the names in `data.columns`, and in the older keys (`data.prompt_key` ...). Raises
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
                f"data.columns.{name}: no value of that name{did_you_mean(name, names)}"
            )
        elif not isinstance(column, str | int):
            problems.append(
                f"data.columns.{name}={column}: give the name of one column, e.g."
                f" data.columns.{name}=question"
            )
    if problems:
        raise ConfigError(problems)
    return ColumnNames(paths)


def names_in(fields: Mapping[str, Any]) -> ColumnNames:
    """Return the names that a scored row has in `rmrl_columns`; the usual ones without it. Raises
    FieldError for other contents in that column."""
    text = fields.get(NAMES_COLUMN)
    if text is None or text == "":
        return DEFAULT_NAMES
    names = _names_of(str(text))
    if names is None:
        raise FieldError(
            NAMES_COLUMN,
            saw=shown(text),
            need='the names that rmrl score writes, such as {"prompt": "question"}',
            todo="drop the column, and name the columns with data.columns={prompt: question}",
        )
    return names


@lru_cache(maxsize=16)
def _names_of(text: str) -> ColumnNames | None:
    """Return the names that `ColumnNames.as_text` wrote, None for any other text."""
    paths: Any = parsed(text)
    if not isinstance(paths, Mapping) or not all(isinstance(path, str) for path in paths.values()):
        return None
    return ColumnNames(paths)


def at_path(values: Mapping[str, Any], path: str) -> Any:
    """Return a column's value, or below it: "judgments.0.decision"; ABSENT where there is
    none."""
    if path in values:
        return values[path]
    if "." not in path:
        return ABSENT
    return _below(values, path.split("."))


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return a column's value as `at_path` does, None where it is absent."""
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
        node = parsed(node)
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
