"""Which responses are compared with each other, and the order in which rows are scored so that each
group is scored whole.

A group is named by the columns of `data.group_key`; without them by `prompt_id` and `step` where a
row has them (a run's samples.jsonl: one prompt sampled at two steps makes two groups), else by the
prompt. Rows of a group may stand anywhere in the files.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmrl.data.problems import FieldError
from rmrl.data.schema import is_null, plain
from rmrl.errors import ConfigError
from rmrl.types import Messages

_OF_SAMPLES = ("step", "prompt_id")
_KEY_BYTES = 16


def group_columns(given: object) -> tuple[str, ...]:
    """The columns that `data.group_key` names: one name or a list of them. Raises ConfigError for
    anything else."""
    names = [given] if isinstance(given, str) else given
    if names is None:
        return ()
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise ConfigError(
            f"data.group_key={given!r}: give a column or a list of columns, e.g."
            " data.group_key=[run,prompt_id]"
        )
    return tuple(names)


def group_of(fields: Mapping[str, Any], messages: Messages, columns: Sequence[str]) -> bytes:
    """16 bytes, equal for the rows of one group. Raises FieldError where a row lacks one of
    `columns`."""
    for name in columns:
        if name not in fields:
            seen = ", ".join(fields) or "(none)"
            raise FieldError(
                name,
                saw=f"only the columns {seen}",
                need=f"the column '{name}' of data.group_key",
                todo="name another one",
            )
    names = list(columns) or [name for name in _OF_SAMPLES if not is_null(fields.get(name))]
    values = {name: _number_as_written(plain(fields[name])) for name in names}
    if not columns and "prompt_id" not in values:
        values["prompt"] = [dict(message) for message in messages]
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()


def _number_as_written(value: Any) -> Any:
    """3.0 as 3: pandas makes floats of whole numbers where a column has gaps."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(slots=True)
class GroupTable:
    """The group of every row, gathered as the rows pass: about 170 bytes per group and 16 per
    row."""

    _number_of: dict[bytes, int] = field(default_factory=dict)
    _responses: array[int] = field(default_factory=lambda: array("q"))
    _first_file: array[int] = field(default_factory=lambda: array("q"))
    _group_of_row: array[int] = field(default_factory=lambda: array("q"))
    _bytes_of_row: array[int] = field(default_factory=lambda: array("q"))
    _in_order: bool = True
    _over_files: set[int] = field(default_factory=set)

    def add(self, group: bytes, *, responses: int, size: int, file: int) -> None:
        """One more row of `size` bytes, from the file of number `file`."""
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
        """Groups of one response."""
        if not self._responses:
            return 0
        responses = np.frombuffer(self._responses, dtype=np.int64)
        return int((responses == 1).sum())

    @property
    def over_files(self) -> int:
        """Groups with rows of more than one file."""
        return len(self._over_files)

    @property
    def scattered(self) -> bool:
        """Rows of some group do not follow each other."""
        return not self._in_order

    def order(self) -> np.ndarray:
        """Row numbers, int64, group after group in the order of their first rows."""
        return np.argsort(np.frombuffer(self._group_of_row, dtype=np.int64), kind="stable")

    def windows(self, order: np.ndarray, *, most_bytes: int) -> list[np.ndarray]:
        """`order` in pieces of at most `most_bytes` (one row more where a row alone is larger)."""
        sizes = np.frombuffer(self._bytes_of_row, dtype=np.int64)[order]
        if not len(order):
            return []
        piece = np.cumsum(sizes) // max(most_bytes, 1)
        return np.split(order, np.flatnonzero(np.diff(piece)) + 1)
