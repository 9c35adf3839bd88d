"""A job's identity: its configuration without the keys that may change when it is resumed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, cast

from rmrl.config.plain_checks import keys_of
from rmrl.config.schema.fields import may_change
from rmrl.digests import digest

_ABSENT = "(not set)"


def changeable_keys(config: Any) -> frozenset[str]:
    """Return the keys whose fields are declared `may_change`: devices, memory, time limits, how
    long the job is, and output. A section's name covers all keys below it."""
    return frozenset(key for key, entry in keys_of(config) if may_change(entry))


def identify(config: object, changeable: Collection[str]) -> dict[str, Any]:
    """Flatten the configuration to {"data.train_files": ...}, without the keys that may change (a
    section's name covers all keys below it)."""
    tree: Any = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    # Through JSON and back, so that the values compare as a file holds them (tuples become lists,
    # paths become text).
    flat = _flat(json.loads(json.dumps(tree, default=str)), "")
    return {key: value for key, value in flat.items() if not _may_change(key, changeable)}


def fingerprint(identity: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits, equal for all configurations that may resume one another's
    job."""
    return digest(identity)[:16]


def differences(
    saved: Mapping[str, Any], current: Mapping[str, Any], changeable: Collection[str]
) -> list[str]:
    """Return lines such as "data.seed: 1 there, 2 here", for keys that may not change. "there" is
    `saved`'s value."""
    lines: list[str] = []
    for key in sorted(saved.keys() | current.keys()):
        before = saved.get(key, _ABSENT)
        now = current.get(key, _ABSENT)
        if before != now and not _may_change(key, changeable):
            lines.append(f"{key}: {_short(before)} there, {_short(now)} here")
    return lines


def _may_change(key: str, changeable: Collection[str]) -> bool:
    parts = key.split(".")
    if parts[:2] == ["reward", "specs"] and "engine" in parts[3:]:
        # The engine of one reward has the settings of reward.engine.
        parts = ["reward", *parts[parts.index("engine", 3) :]]
    sections = itertools.accumulate(parts, "{}.{}".format)
    return not set(changeable).isdisjoint(sections)


def _flat(tree: Mapping[str, Any], head: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            out |= _flat(cast("dict[str, Any]", value), f"{head}{key}.")
        else:
            out[f"{head}{key}"] = value
    return out


def _short(value: object) -> str:
    text = _ABSENT if value == _ABSENT else json.dumps(value, ensure_ascii=False)
    return f"{text[:77]}..." if len(text) > 80 else text
