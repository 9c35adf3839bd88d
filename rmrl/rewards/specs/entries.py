"""Entries of one reward that are typed freely (`sampling`, `engine`, deadlines), checked before
anything is loaded."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from rmrl.errors import ConfigError
from rmrl.inference.scoring import ENGINES
from rmrl.registry import did_you_mean
from rmrl.types import Sampling

RESIDENCIES, PUT_AWAY = ("auto", "on_demand", "resident"), ("auto", "sleep1", "sleep2", "unload")


def check_choices(engine: Mapping[str, Any], *, where: str) -> None:
    """Raise ConfigError for an engine, residency or way to put away that does not exist."""
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


def sampling_of(given: Any, where: str) -> Sampling:
    """A judge's sampling: greedy, 256 tokens, unless `given` says otherwise. Raises ConfigError
    with all its problems."""
    entries: dict[str, Any] = {
        "max_tokens": 256,
        "temperature": 0.0,
        **known_entries(given, Sampling, f"{where}.sampling"),
    }
    for key in ("choice", "stop"):
        if key in entries:
            values = entries[key] if isinstance(entries[key], list | tuple) else [entries[key]]
            entries[key] = tuple(str(value) for value in values)
    sampling = Sampling(**entries)
    wrong = [
        f"{where}.sampling.{key}={getattr(sampling, key)}: {need}"
        for key, ok, need in (
            ("max_tokens", sampling.max_tokens >= 1, "give at least 1 token"),
            ("n", sampling.n >= 1, "give at least 1 vote"),
            ("temperature", sampling.temperature >= 0, "must not be negative"),
            ("top_p", 0 < sampling.top_p <= 1, "give a share above 0 and at most 1"),
        )
        if not ok
    ]
    if sampling.n > 1 and sampling.temperature == 0:
        wrong.append(
            f"{where}.sampling.n={sampling.n} with temperature=0 gives {sampling.n} equal votes:"
            " give a temperature above 0, or n=1"
        )
    if wrong:
        raise ConfigError(wrong)
    return sampling


def seconds(given: Any, default: float, where: str) -> float:
    """A deadline; `default` where nothing is given. Raises ConfigError unless it is a finite number
    above 0."""
    value = default if given is None else given
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (math.isfinite(value) and value > 0)
    ):
        raise ConfigError(f"{where}={value!r}: give a number of seconds greater than 0")
    return float(value)


def known_entries(given: Any, schema: type, where: str) -> dict[str, Any]:
    """Entries of a free-form section, checked against the fields of `schema`: names, and the types
    of plain numbers and strings."""
    hints = typing.get_type_hints(schema)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}={given!r}: give entries, known: {', '.join(hints)}")
    problems = [
        f"{where}.{key}: no such entry{did_you_mean(str(key), list(hints))}"
        for key in given
        if key not in hints
    ]
    problems += [
        f"{where}.{key}={v!r}: {need}"
        for key, v in given.items()
        if key in hints and (need := _type_problem(v, hints[key]))
    ]
    if problems:
        raise ConfigError(problems)
    return dict(given)


def _type_problem(value: Any, annotation: Any) -> str:
    """What is needed instead; "" when `value` fits, or the annotation is no plain type."""
    plain = (
        typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    )
    names = {bool: "True or False", int: "a whole number", float: "a number", str: "a name"}
    if not all(each in (*names, type(None)) for each in plain):
        return ""
    fits = type(value) in plain or (float in plain and type(value) is int)
    return "" if fits else "give " + " or ".join(names.get(each, "null") for each in plain)
