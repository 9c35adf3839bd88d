"""Response groups that are compared with each other, and a row order in which each group is scored
as a whole.

A group's key are the columns in `data.group_key`, or paths below them; by default `prompt_id` and
`step` where a row has them (a run's samples.jsonl: one prompt sampled at two steps makes two
groups), else the prompt. A group's rows may be anywhere in the files.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmrl.data.column_names import ABSENT, at_path, value_at
from rmrl.data.problems import FieldError
from rmrl.data.schema import is_null, plain
from rmrl.errors import ConfigError
from rmrl.types import Messages

_OF_SAMPLES = ("step", "prompt_id")
_KEY_BYTES = 16
_JSON = json.JSONEncoder(sort_keys=True, default=str)


def group_columns(setting: object) -> tuple[str, ...]:
    """Return the columns in `data.group_key`: one name or several in a list. Raises ConfigError for
    anything else."""
    if setting is None:
        return ()
    names: Sequence[Any] = ()
    if isinstance(setting, str):
        names = [setting]
    elif isinstance(setting, list | tuple):
        names = setting
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f"data.group_key={setting!r}: give a column or a list of columns, e.g."
            " data.group_key=[run,prompt_id]"
        )
    return tuple(names)


def group_of(fields: Mapping[str, Any], messages: Messages, columns: Sequence[str]) -> bytes:
    """Return 16 bytes, equal for one group's rows. Raises FieldError where a row lacks a column in
    `columns`."""
    for name in columns:
        if at_path(fields, name) is ABSENT:
            names = ", ".join(fields) or "(none)"
            raise FieldError(
                name,
                saw=f"only the columns {names}",
                need=f"the column '{name}' of data.group_key",
                todo="name another one",
            )
    key: dict[str, Any] = {}
    for name in columns or _OF_SAMPLES:
        value = plain(value_at(fields, name))
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # pandas converts integers to floats where a column has gaps
        if columns or not is_null(value):
            key[name] = value
    if not columns and "prompt_id" not in key:
        key["prompt"] = list(map(dict, messages))
    return hashlib.blake2b(_JSON.encode(key).encode(), digest_size=_KEY_BYTES).digest()


@dataclass(slots=True)
class GroupTable:
    """Every row's group, collected in one pass: about 170 bytes per group and 16 per row."""

    _number_of: dict[bytes, int] = field(default_factory=dict)
    _responses: array[int] = field(default_factory=lambda: array("q"))
    _first_file: array[int] = field(default_factory=lambda: array("q"))
    _group_of_row: array[int] = field(default_factory=lambda: array("q"))
    _bytes_of_row: array[int] = field(default_factory=lambda: array("q"))
    _in_order: bool = True
    _over_files: set[int] = field(default_factory=set)

    def add(self, group: bytes, *, responses: int, size: int, file: int) -> None:
        """Add a row with `size` bytes from file number `file`."""
        number = self._number_of.setdefault(group, len(self._number_of))
        if number == len(self._responses):
            self._responses.append(0)
            self._first_file.append(file)
        if self._group_of_row and number < self._group_of_row[-1]:
            self._in_order = False
        if self._first_file[number] != file:
            self._over_files.add(number)
        self._responses[number] += responses
        self._group_of_row.append(number)
        self._bytes_of_row.append(size)

    @property
    def groups(self) -> int:
        return len(self._responses)

    @property
    def singles(self) -> int:
        """How many groups have one response."""
        if not self._responses:
            return 0
        responses = np.frombuffer(self._responses, dtype=np.int64)
        return int((responses == 1).sum())

    @property
    def over_files(self) -> int:
        """How many groups have rows in more than one file."""
        return len(self._over_files)

    @property
    def scattered(self) -> bool:
        """Whether some group's rows are not consecutive."""
        return not self._in_order

    def of_rows(self) -> np.ndarray:
        """Return each row's group number, int64."""
        return np.frombuffer(self._group_of_row, dtype=np.int64)

    def order(self) -> np.ndarray:
        """Return row numbers, int64, group after group, ordered by their first rows."""
        return np.argsort(self.of_rows(), kind="stable")

    def windows(self, order: np.ndarray, *, most_bytes: int) -> list[np.ndarray]:
        """Split `order` into pieces with at most `most_bytes`. A larger row is a piece by
        itself."""
        sizes = np.frombuffer(self._bytes_of_row, dtype=np.int64)[order]
        if not len(order):
            return []
        piece = np.cumsum(sizes) // max(most_bytes, 1)
        return np.split(order, np.flatnonzero(np.diff(piece)) + 1)
