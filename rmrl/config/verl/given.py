"""Overrides of a command line as values, and values as overrides."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PLAIN = re.compile(r"[\w./:@%+~-]+")
_WORDS = ("null", "true", "false", "nan", "inf", "yes", "no", "on", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One override."""

    key: str
    """Dotted, without the + before it."""
    value: Any
    """As Hydra reads it; None for a sweep or a deletion."""
    text: str
    """As it was typed."""
    plain: bool = True
    """False for a sweep (`a=1,2`) and a deletion (`~a`), which have no single value."""
    origin: int = 0
    """Its place on the command line; entries of one mapping share it."""


def override(key: str, value: Any) -> str:
    """`key=value` as Hydra reads it back."""
    return f"{key}={hydra_text(value)}"


def hydra_text(value: Any) -> str:
    """A value in Hydra's grammar of overrides: numbers, words, quoted strings, lists and
    mappings."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{hydra_text(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(hydra_text(entry) for entry in value) + "]"
    return _string(str(value))


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every entry of a nested mapping; an empty mapping is a value."""
    if not isinstance(value, Mapping) or not value:
        yield key, value
        return
    for name, entry in value.items():
        yield from leaves(f"{key}.{name}" if key else str(name), entry)


def last_values(given: Sequence[Given]) -> dict[str, Any]:
    """Key -> value; the last one counts, as it does for Hydra."""
    return {one.key: one.value for one in given if one.plain}


def _number(value: float) -> str:
    return str(value) if math.isfinite(value) else repr(value)


def _string(text: str) -> str:
    if text.startswith("${") or (
        _PLAIN.fullmatch(text) and text.lower() not in _WORDS and not _is_number(text)
    ):
        return text
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
