"""Checks that apply to many keys."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rmrl.config.schema.fields import problem_of


def look_up(config: Any, key: str) -> Any:
    """Return a dotted key's value. Raises AttributeError for a key that does not exist."""
    return operator.attrgetter(key)(config)


def keys_of(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yield dotted key and field for every entry in a configuration, its sections' included."""
    for entry in dataclasses.fields(config):
        key = f"{prefix}{entry.name}"
        yield key, entry
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            yield from keys_of(value, f"{key}.")


def field_problems(config: Any, prefix: str = "") -> Iterator[str]:
    """Yield one sentence for every value that its field does not allow
    (`rmrl.config.schema.fields`). `prefix`: what stands before the keys, such as
    "reward.specs.judge."."""
    for key, entry in keys_of(config):
        problem = problem_of(entry, f"{prefix}{key}", look_up(config, key))
        if problem is not None:
            yield problem


def folder_problems(out: str | None, holds: str, *, example: str) -> Iterator[str]:
    """Yield a sentence where `out` names no folder for what it `holds`, e.g. "the report"."""
    if not out:
        yield f"out is empty: give a folder for {holds}, e.g. out={example}"
    elif Path(out).expanduser().is_file():
        yield f"out={out} is a file; give a folder for {holds}"


def confidence_problems(key: str, confidence: float) -> Iterator[str]:
    """Yield a sentence where the intervals' confidence is no share strictly between 0 and 1."""
    if not 0 < confidence < 1:
        yield f"{key}={confidence}: give a number between 0 and 1, e.g. 0.95"


def count(items: Sequence[Any], word: str) -> str:
    """Format a count with its noun: "1 value", "2 values"."""
    return f"{len(items)} {word}" if len(items) == 1 else f"{len(items)} {word}s"
