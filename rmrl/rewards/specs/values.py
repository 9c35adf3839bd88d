"""Check one reward's free-form entries (`sampling`, `engine`, deadlines) before anything is
loaded."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmrl.config.numbers import is_number
from rmrl.errors import ConfigError
from rmrl.inference.reward_engines import ENGINES
from rmrl.registry import did_you_mean
from rmrl.types import Sampling

RESIDENCIES = ("auto", "on_demand", "resident")
PUT_AWAY = ("auto", "sleep1", "sleep2", "unload")


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherModel:
    """Entries for a further model that a kind has, such as a critique's scorer."""

    path: str = ""
    """Folder or hub id."""
    adapter: str = ""
    """Folder of a LoRA adapter."""
    engine: dict[str, Any] = field(default_factory=dict[str, Any])
    """Entries as in a reward's `engine`."""


def check_choices(engine: Mapping[str, Any], *, where: str) -> None:
    """Raise ConfigError for an unknown engine, residency or way to put away."""
    for key, allowed in (
        ("name", tuple(ENGINES)),
        ("residency", RESIDENCIES),
        ("put_away", PUT_AWAY),
    ):
        value = str(engine[key])
        if value not in allowed and not (key == "name" and value in ENGINES):
            raise ConfigError(
                f"{where}.{key}={value}: not a choice{did_you_mean(value, list(allowed))}"
            )


def sampling_of(entry: Any, where: str) -> Sampling:
    """Return a judge's sampling. The default is greedy with 256 tokens. Raises ConfigError with all
    problems in `entry`."""
    entries: dict[str, Any] = {
        "max_tokens": 256,
        "temperature": 0.0,
        **known_entries(entry, Sampling, f"{where}.sampling"),
    }
    for key in ("choice", "stop"):
        if key in entries:
            values = entries[key] if isinstance(entries[key], list | tuple) else [entries[key]]
            entries[key] = tuple(map(str, values))
    sampling = Sampling(**entries)
    problems = [
        f"{where}.sampling.{key}={getattr(sampling, key)}: {need}"
        for key, valid, need in (
            ("max_tokens", sampling.max_tokens >= 1, "give at least 1 token"),
            ("n", sampling.n >= 1, "give at least 1 vote"),
            ("temperature", sampling.temperature >= 0, "must not be negative"),
            ("top_p", 0 < sampling.top_p <= 1, "give a share above 0 and at most 1"),
        )
        if not valid
    ]
    if sampling.n > 1 and sampling.temperature == 0:
        problems.append(
            f"{where}.sampling.n={sampling.n} with temperature=0 gives {sampling.n} equal votes:"
            " give a temperature above 0, or n=1"
        )
    if problems:
        raise ConfigError(problems)
    return sampling


def seconds(entry: Any, default: float, where: str) -> float:
    """Return a deadline in seconds, `default` for None. Raises ConfigError unless the deadline is a
    finite number above 0."""
    value = default if entry is None else entry
    if not is_number(value) or value <= 0:
        raise ConfigError(f"{where}={value!r}: give a number of seconds greater than 0")
    return float(value)


def component_names(entry: Any, where: str) -> tuple[str, ...]:
    """Return the component names from one name, a list of names or None. Raises ConfigError naming
    `where`."""
    if entry is None:
        return ()
    names = [entry] if isinstance(entry, str) else entry
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where}={entry!r}: give the name of a component, or a list of names")
    return tuple(names)


def component_scores(entry: Any, where: str) -> dict[str, float]:
    """Return component -> score from a mapping or None. Raises ConfigError naming `where` unless
    every score is a finite number."""
    if entry is None:
        return {}
    problem = ConfigError(
        f"{where}={entry!r}: give components and the score each must have, e.g."
        f" {where}={{gsm8k: 1}}"
    )
    if not isinstance(entry, Mapping) or not entry:
        raise problem
    scores: dict[str, float] = {}
    for name, score in entry.items():
        if not is_number(score):
            raise problem
        scores[str(name)] = float(score)
    return scores


def known_entries(section: Any, schema: type, where: str) -> dict[str, Any]:
    """Check a free-form section against the fields of `schema`: names, and the types of plain
    numbers and strings. Raises ConfigError with all problems."""
    hints = typing.get_type_hints(schema)
    if not isinstance(section, Mapping):
        raise ConfigError(f"{where}={section!r}: give entries, known: {', '.join(hints)}")
    unknown: list[str] = []
    unfit: list[str] = []
    for key, value in section.items():
        if key not in hints:
            unknown.append(f"{where}.{key}: no such entry{did_you_mean(str(key), list(hints))}")
            continue
        need = _type_problem(value, hints[key])
        if need:
            unfit.append(f"{where}.{key}={value!r}: {need}")
    if unknown or unfit:
        raise ConfigError([*unknown, *unfit])
    return dict(section)


def _type_problem(value: Any, annotation: Any) -> str:
    """Return the type that is needed instead. "" when `value` fits, or the annotation is no plain
    type."""
    plain = (annotation,)
    if isinstance(annotation, types.UnionType):
        plain = typing.get_args(annotation)
    names = {bool: "True or False", int: "a whole number", float: "a number", str: "a name"}
    if not set(plain) <= {*names, type(None)}:
        return ""
    if type(value) in plain or (float in plain and type(value) is int):
        return ""
    choices = [names.get(each, "null") for each in plain]
    needed = f"give {' or '.join(choices)}"
    if isinstance(value, bool) and str in plain:
        needed += "; YAML reads yes, no, on, off, true and false as True or False: quote a name"
    return needed
