"""The older lists' values: a list has one entry per reward model, a single value applies to all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists with one entry per reward model."""

    count: int

    def at(self, key: str, value: Any, index: int) -> Any:
        """Return model `index`'s value. Raises ConfigError naming `key` where a list is longer or
        shorter than the models."""
        if not isinstance(value, list):
            return value
        if len(value) != self.count:
            raise ConfigError(
                f"{key} has {len(value)} values for {self.count} reward models: give one per model,"
                " or one value for all"
            )
        return value[index]

    def number(self, key: str, value: Any, index: int) -> float:
        """Return model `index`'s value as a number."""
        return number(key, self.at(key, value, index))


def number(key: str, value: Any) -> float:
    """Return `value` as a float. Raises ConfigError naming `key`."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}={value!r}: give a number") from error


def as_list(value: Any) -> list[Any]:
    """Return the value as a list: None has no entry, a single value has one."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def entries(items: Sequence[Any]) -> str:
    """Format how many items there are: "1 entry", "2 entries"."""
    return f"{len(items)} entry" if len(items) == 1 else f"{len(items)} entries"


def unique(names: Sequence[str], *, taken: Iterable[str]) -> list[str]:
    """Number names that repeat, or that are in `taken`: judge, judge_2, ..."""
    used = set(taken)
    numbered: list[str] = []
    for name in names:
        candidate = name
        count = 1
        while candidate in used:
            count += 1
            candidate = f"{name}_{count}"
        used.add(candidate)
        numbered.append(candidate)
    return numbered
