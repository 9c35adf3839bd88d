"""What makes a job this job: its configuration without the keys that may change when it goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, cast

from rmrl.config.plain_checks import keys_of
from rmrl.config.schema.fields import may_change

_ABSENT = "(not set)"


def changeable_keys(config: Any) -> frozenset[str]:
    """Keys whose fields are declared `may_change`: where a job runs, with how much memory and
    patience, how long, and what becomes of its result. A section's name stands for all below it."""
    return frozenset(key for key, entry in keys_of(config) if may_change(entry))


def identify(config: object, changeable: Collection[str]) -> dict[str, Any]:
    """The configuration as {"data.train_files": ...}, without the keys that may change (a section's
    name stands for all below it)."""
    tree: Any = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    # Through JSON and back, so that what is compared is what a file can hold (tuples become lists,
    # paths become text).
    flat = _flat(json.loads(json.dumps(tree, default=str)), "")
    return {key: value for key, value in flat.items() if not _may_change(key, changeable)}


def fingerprint(identity: Mapping[str, Any]) -> str:
    """16 hexadecimal digits; the same for all configurations that may go on with one another's
    job."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def differences(
    known: Mapping[str, Any], ours: Mapping[str, Any], changeable: Collection[str]
) -> list[str]:
    """Lines such as "data.seed: 1 there, 2 here", for keys that may not change."""
    keys = sorted(key for key in known.keys() | ours.keys() if not _may_change(key, changeable))
    pairs = [(key, known.get(key, _ABSENT), ours.get(key, _ABSENT)) for key in keys]
    return [
        f"{key}: {_short(theirs)} there, {_short(mine)} here"
        for key, theirs, mine in pairs
        if theirs != mine
    ]


def _may_change(key: str, changeable: Collection[str]) -> bool:
    parts = key.split(".")
    if (
        parts[:2] == ["reward", "specs"] and "engine" in parts[3:]
    ):  # one reward's own engine: as for reward.engine
        parts = ["reward", *parts[parts.index("engine", 3) :]]
    return any(".".join(parts[:n]) in changeable for n in range(1, len(parts) + 1))


def _flat(tree: Mapping[str, Any], head: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= (
            _flat(cast("dict[str, Any]", value), f"{head}{key}.")
            if isinstance(value, dict) and value
            else {f"{head}{key}": value}
        )
    return out


def _short(value: object) -> str:
    text = _ABSENT if value == _ABSENT else json.dumps(value, ensure_ascii=False)
    return f"{text[:77]}..." if len(text) > 80 else text
