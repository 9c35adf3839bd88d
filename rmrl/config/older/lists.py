"""Values of the older lists: a list has one entry per reward model, a single value holds for
all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Lists:
    """Positions of the older lists."""

    count: int

    def at(self, key: str, value: Any, index: int) -> Any:
        """The value of model `index`. ConfigError naming `key` where a list has another length than
        there are models."""
        if not isinstance(value, list):
            return value
        if len(value) != self.count:
            raise ConfigError(
                f"{key} has {len(value)} values for {self.count} reward models: give one per model,"
                " or one value for all"
            )
        return value[index]

    def number(self, key: str, value: Any, index: int) -> float:
        """The same as a number."""
        return number(key, self.at(key, value, index))


def number(key: str, value: Any) -> float:
    """`value` as a float; ConfigError naming `key`."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}={value!r}: give a number") from error


def as_list(value: Any) -> list[Any]:
    """None is no entry, a single value is one."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def entries(items: Sequence[Any]) -> str:
    """For people: "1 entry", "2 entries"."""
    return f"{len(items)} entry" if len(items) == 1 else f"{len(items)} entries"


def unique(names: Sequence[str], *, taken: Iterable[str]) -> list[str]:
    """Rewards that share one function still need a name each: judge, judge_2, ..."""
    seen = set(taken)
    given: list[str] = []
    for name in names:
        candidate = name
        count = 1
        while candidate in seen:
            count += 1
            candidate = f"{name}_{count}"
        seen.add(candidate)
        given.append(candidate)
    return given
