"""Fields that carry their constraint: a key's range is stated once, beside its default.

    lr: float = not_negative(1e-6)
    device: str = choice("auto", among=("auto", "cuda", "cpu"), may_change=True)

`rmrl.config.plain_checks` reads the constraints, `rmrl.config.identity` the keys that a resumed run
may change, and docs/configuration.md prints both.
"""

from __future__ import annotations

import dataclasses
import math
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


def greater(default: Any = dataclasses.MISSING, *, than: float, may_change: bool = False) -> Any:
    """Declare a number above `than`."""
    need = f"must be greater than {than}"
    return _bounded(default, f"> {than}", lambda value: value > than, need, may_change)


def positive(default: Any = dataclasses.MISSING, *, may_change: bool = False) -> Any:
    """Declare a number above 0."""
    return greater(default, than=0, may_change=may_change)


def not_negative(default: Any = dataclasses.MISSING, *, may_change: bool = False) -> Any:
    """Declare a number that is at least 0."""
    return _bounded(default, ">= 0", lambda value: value >= 0, "must not be negative", may_change)


def at_least(default: Any = dataclasses.MISSING, *, least: int, may_change: bool = False) -> Any:
    """Declare a number that is at least `least`."""
    need = f"give at least {least}"
    return _bounded(default, f">= {least}", lambda value: value >= least, need, may_change)


def count_or_all(default: int = -1, *, may_change: bool = False) -> Any:
    """Declare a count: at least 1, or -1 for all."""
    need = "give at least 1, or -1 for all"
    return _bounded(default, "-1, >= 1", lambda value: value == -1 or value >= 1, need, may_change)


def fraction(default: float | None, *, may_change: bool = False) -> Any:
    """Declare a number above 0 and at most 1."""
    need = "give a number above 0 and at most 1"
    return _bounded(default, "> 0, <= 1", lambda value: 0 < value <= 1, need, may_change)


def decays(*defaults: float) -> Any:
    """Declare a list with as many decay rates as there are defaults, each from 0 to below 1."""

    def problem(key: str, value: Any) -> str | None:
        if len(value) == len(defaults) and all(0 <= each < 1 for each in value):
            return None
        example = ",".join(map(str, defaults))
        return (
            f"{key}={value}: give {len(defaults)} numbers from 0 to below 1, e.g. {key}=[{example}]"
        )

    rule = Rule(f"{len(defaults)} of 0..1", problem)
    return dataclasses.field(default_factory=lambda: list(defaults), metadata={_RULE: rule})


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
    problem = None if rule is None else rule.problem(key, value)
    if problem is None and isinstance(value, float) and not math.isfinite(value):
        return f"{key}={value}: give a finite number"
    return problem


def may_change(entry: dataclasses.Field[Any]) -> bool:
    """Return whether a resumed run may change the field."""
    return bool(entry.metadata.get(_MAY_CHANGE))


def _bounded(
    default: Any, text: str, allowed: Callable[[Any], bool], need: str, may_change: bool
) -> Any:
    """Declare a number for which `allowed` is true, or null. NaN is refused."""

    def problem(key: str, value: Any) -> str | None:
        if value is None or allowed(value):
            return None
        return f"{key}={value}: {need}"

    return _declare(default, Rule(text, problem), may_change)


def _declare(default: Any, rule: Rule, changes: bool) -> Any:
    metadata: Mapping[str, Any] = {_RULE: rule, _MAY_CHANGE: changes}
    return dataclasses.field(default=default, metadata=metadata)
