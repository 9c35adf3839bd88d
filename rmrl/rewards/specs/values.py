"""Check one reward's free-form entries (`sampling`, `engine`, deadlines) before anything is
loaded."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmrl.config.numbers import is_number
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean
from rmrl.rewards.specs.entry_types import advice, fits
from rmrl.types import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherModel:
    """Entries for a further model that a kind has, such as a critique's scorer."""

    path: str = ""
    """Folder or hub id."""
    adapter: str = ""
    """Folder of a LoRA adapter."""
    engine: dict[str, Any] = field(default_factory=dict[str, Any])
    """Entries as in a reward's `engine`."""


def sampling_of(entry: Any, where: str) -> Sampling:
    """Return a judge's sampling. The default is greedy with 256 tokens. Raises ConfigError with all
    problems in `entry`."""
    given: Any = entry
    if isinstance(entry, Mapping):
        given = {"max_tokens": 256, "temperature": 0.0, **entry}
        for key in ("choice", "stop"):
            if key in entry:
                texts = entry[key] if isinstance(entry[key], list | tuple) else [entry[key]]
                given[key] = tuple(map(str, texts))
        if isinstance(entry.get("stop_token_ids"), list):
            given["stop_token_ids"] = tuple(entry["stop_token_ids"])
    sampling = Sampling(**known_entries(given, Sampling, f"{where}.sampling"))
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
    if not fits(names, Sequence[str]):
        raise ConfigError(f"{where}={entry!r}: give the name of a component, or a list of names")
    return tuple(names)


def component_scores(entry: Any, where: str) -> dict[str, float]:
    """Return component -> score from a mapping or None. Raises ConfigError naming `where` unless
    every score is a finite number."""
    if entry is None:
        return {}
    if not entry or not fits(entry, Mapping[Any, float]):
        raise ConfigError(
            f"{where}={entry!r}: give components and the score each must have, e.g."
            f" {where}={{gsm8k: 1}}"
        )
    return {str(name): float(score) for name, score in entry.items()}


def known_entries(section: Any, schema: type, where: str, *, example: str = "") -> dict[str, Any]:
    """Check a free-form section against a dataclass: which fields it has, which it needs, and their
    types. `example`: entries that a user may type, for a section that lacks some. Raises
    ConfigError with all problems."""
    fields = {field.name: field for field in dataclasses.fields(schema)}
    if not isinstance(section, Mapping):
        raise ConfigError(f"{where}={section!r}: give entries, known: {', '.join(fields)}")
    hints = typing.get_type_hints(schema)
    problems: list[str] = []
    for key, value in section.items():
        if key not in fields:
            problems.append(f"{where}.{key}: no such entry{did_you_mean(str(key), list(fields))}")
        elif not fits(value, hints[key]):
            problems.append(f"{where}.{key}={value!r}: {advice(value, hints[key])}")
    missing = [name for name in fields if name not in section and _is_required(fields[name])]
    if missing:
        problems.append(f"{where} needs {' and '.join(missing)}, e.g. {example}")
    if problems:
        raise ConfigError(problems)
    return dict(section)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
