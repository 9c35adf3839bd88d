"""Fields that carry their constraint: a key's range is stated once, beside its default.

    lr: float = not_negative(1e-6)
    device: str = choice("auto", among=("auto", "cuda", "cpu"), may_change=True)

`rmrl.config.plain_checks` reads the constraints (for the entries of a reward
`rmrl.rewards.specs.values`), `rmrl.config.identity` the keys that a resumed run may change, and
docs/configuration.md prints both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rmrl.registry import did_you_mean

_RULE = "rule"
_MAY_CHANGE = "may_change"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The values a key may have, as text for people and as a check.

    `problem` maps a key and a forbidden value to a sentence's end. It returns None where the value
    is allowed. Numbers that are null are not checked.
    """

    text: str
    problem: Callable[[str, Any], str | None]
    choices: tuple[str | None, ...] = ()


def positive(default: Any = dataclasses.MISSING, *, may_change: bool = False) -> Any:
    """Declare a number above 0. NaN is not above 0."""

    def problem(key: str, value: Any) -> str | None:
        if value is None or value > 0:
            return None
        return f"{key}={value}: must be greater than 0"

    return _declare(default, Rule("> 0", problem), may_change)


def not_negative(default: Any = dataclasses.MISSING, *, may_change: bool = False) -> Any:
    """Declare a number that is at least 0. NaN is refused."""

    def problem(key: str, value: Any) -> str | None:
        if value is None or value >= 0:
            return None
        return f"{key}={value}: must not be negative"

    return _declare(default, Rule(">= 0", problem), may_change)


def at_least(default: Any = dataclasses.MISSING, *, least: int) -> Any:
    """Declare a number that is at least `least`."""

    def problem(key: str, value: Any) -> str | None:
        if value is None or value >= least:
            return None
        return f"{key}={value}: give at least {least}"

    return _declare(default, Rule(f">= {least}", problem), changes=False)


def share(default: float | None, *, may_change: bool = False) -> Any:
    """Declare a number from 0 to 1. None as default allows null."""

    def problem(key: str, value: Any) -> str | None:
        if value is None and default is None:
            return None
        if value is not None and 0 <= value <= 1:
            return None
        example = 1.0 if default is None else default
        return f"{key}={value} lies outside 0..1; use {key}={example}"

    return _declare(default, Rule("0..1", problem), may_change)


def choice(
    default: Any = dataclasses.MISSING, *, among: Sequence[str | None], may_change: bool = False
) -> Any:
    """Declare a key with a few allowed names. None among them allows null."""
    names = [name for name in among if name is not None]

    def problem(key: str, value: Any) -> str | None:
        if value in among:
            return None
        return f"{key}={value!r}: not a choice{did_you_mean(str(value), names)}"

    text = ", ".join("null" if name is None else name for name in among)
    return _declare(default, Rule(text, problem, tuple(among)), may_change)


def changeable(default: Any = dataclasses.MISSING, *, factory: Any = dataclasses.MISSING) -> Any:
    """Declare a key (or a section, by `factory`) that a resumed run may change."""
    metadata = {_MAY_CHANGE: True}
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def rule_of(entry: dataclasses.Field[Any]) -> Rule | None:
    """Return a field's constraint, if it has one."""
    return entry.metadata.get(_RULE)


def problem_of(entry: dataclasses.Field[Any], key: str, value: Any) -> str | None:
    """Return a sentence on a value of `key` that the field does not allow, else None."""
    rule = rule_of(entry)
    return None if rule is None else rule.problem(key, value)


def may_change(entry: dataclasses.Field[Any]) -> bool:
    """Return whether a resumed run may change the field."""
    return bool(entry.metadata.get(_MAY_CHANGE))


def _declare(default: Any, rule: Rule, changes: bool) -> Any:
    metadata: Mapping[str, Any] = {_RULE: rule, _MAY_CHANGE: changes}
    return dataclasses.field(default=default, metadata=metadata)
