"""What makes a job this job: its configuration without the keys that may change when it goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, cast

REWARD_MAY_CHANGE = frozenset(
    {
        "reward.timeout_s", "reward.rule_timeout_s", "reward.rule_workers", "reward.max_missing", "reward.max_missing_by_cause",
        "reward.cache", "reward.monitor",
        "reward.engine.threads", "reward.engine.residency", "reward.engine.put_away", "reward.engine.load_timeout_s",
        "reward.engine.gpu_memory_utilization", "reward.engine.kv_cache_bytes", "reward.engine.tensor_parallel_size",
        "reward.engine.max_num_seqs", "reward.engine.max_num_batched_tokens", "reward.engine.replicas", "reward.engine.pool",
    }
)  # fmt: skip
"""Keys of section `reward` that say where rewards run, with how much memory and patience, and what
may be missing."""

_ABSENT = "(not set)"


def identify(config: object, may_change: Collection[str]) -> dict[str, Any]:
    """The configuration as {"data.train_files": ...}, without the keys that may change (a section's
    name stands for all below it)."""
    tree: Any = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    # Through JSON and back, so that what is compared is what a file can hold (tuples become lists,
    # paths become text).
    flat = _flat(json.loads(json.dumps(tree, default=str)), "")
    return {key: value for key, value in flat.items() if not _may_change(key, may_change)}


def fingerprint(identity: Mapping[str, Any]) -> str:
    """16 hexadecimal digits; the same for all configurations that may go on with one another's
    job."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def differences(
    known: Mapping[str, Any], ours: Mapping[str, Any], may_change: Collection[str]
) -> list[str]:
    """Lines such as "data.seed: 1 there, 2 here", for keys that may not change."""
    keys = sorted(key for key in known.keys() | ours.keys() if not _may_change(key, may_change))
    pairs = [(key, known.get(key, _ABSENT), ours.get(key, _ABSENT)) for key in keys]
    return [
        f"{key}: {_short(theirs)} there, {_short(mine)} here"
        for key, theirs, mine in pairs
        if theirs != mine
    ]


def _may_change(key: str, may_change: Collection[str]) -> bool:
    parts = key.split(".")
    if (
        parts[:2] == ["reward", "specs"] and "engine" in parts[3:]
    ):  # one reward's own engine: as for reward.engine
        parts = ["reward", *parts[parts.index("engine", 3) :]]
    return any(".".join(parts[:n]) in may_change for n in range(1, len(parts) + 1))


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
