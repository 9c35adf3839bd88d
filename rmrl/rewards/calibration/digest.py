"""Identifies a score's source: the model, its sampling, the reward's code and entries.

A calibration holds for exactly these scores. Speed and place are no part of it, nor is anything
behind the score: weight, transform, what to do without a verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.digests import digest
from rmrl.rewards.cache.keys import scorer_key
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.specs.values import FurtherModel
from rmrl.rewards.transforms.probability_map import read_map

PARTS: Mapping[str, str] = {
    "model": "the model (its weights, server, engine or number format)",
    "sampling": "the sampling",
    "code": "the code of prompt, parser or rule",
    "entries": "the entries (kind, prompt, rubric, scale, parser, ...)",
    "members": "the members of the ensemble",
}
"""Part of a digest -> its name for people."""
_OF_MODEL = tuple(of_model.name for of_model in dataclasses.fields(FurtherModel))


def reward_digest(spec: RewardSpec, specs: Sequence[RewardSpec] = ()) -> dict[str, str]:
    """Return part -> sha256 (hex), for the parts that the reward has. `specs`: all rewards, where
    an ensemble finds its members.

    Reads a few MiB in each checkpoint once, and members' calibrations. Raises ConfigError where one
    cannot be read.
    """
    parts = {"entries": digest(_entries(spec), default=repr)}
    models: list[Any] = [
        [role, scorer_key(engine, code_hash="")] for role, engine in sorted(spec.engines.items())
    ]
    if spec.remote is not None:
        models.append(["remote", scorer_key(spec.remote, code_hash="")])
    if models:
        parts["model"] = digest(models, default=repr)
    if spec.sampling is not None:
        parts["sampling"] = digest(dataclasses.asdict(spec.sampling), default=repr)
    code: list[str] = []
    if spec.dropin is not None:
        code.append(spec.dropin.code_hash)
    if spec.function is not None:
        source = spec.function
        code += [source.attribute, source.arguments]
        if not source.is_file:
            code.append(source.target)
    if code:
        parts["code"] = digest(code, default=repr)
    if REWARD_KINDS[spec.kind].combines:
        by_name = {member.name: member for member in specs}
        members: list[Any] = []
        for name in spec.options.of:
            if name in by_name:
                member = by_name[name]
                members.append([name, reward_digest(member), _transforms(member)])
        parts["members"] = digest(members, default=repr)
    return parts


def differing_parts(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the parts in which two digests differ, named for people."""
    return [
        PARTS.get(part, part)
        for part in dict.fromkeys([*PARTS, *first, *second])
        if first.get(part) != second.get(part)
    ]


def _transforms(member: RewardSpec) -> list[Mapping[str, Any]]:
    """The entries of a member's transforms, a calibration's curve instead of its file."""
    transforms: list[Mapping[str, Any]] = []
    for entries in member.transforms:
        if entries["kind"] == "calibrated":
            curve = read_map(entries["file"]).curve
            transforms.append({"kind": "calibrated", "curve": dataclasses.asdict(curve)})
        else:
            transforms.append(entries)
    return transforms


def _entries(spec: RewardSpec) -> dict[str, Any]:
    """The reward's own entries. A server's or a further model's are in its model."""
    entries: dict[str, Any] = {
        "kind": spec.kind,
        "rm_prompt": spec.rm_prompt,
        "overlong": spec.overlong,
    }
    kind = REWARD_KINDS[spec.kind]
    if not dataclasses.fields(spec.options):
        return entries
    options = dataclasses.asdict(spec.options)
    for role in spec.engines:
        further = options.pop(role, {})
        rest = {key: value for key, value in further.items() if key not in _OF_MODEL}
        if rest:
            options[role] = rest
    if content := kind.file_content(spec.options):
        entries["files"] = content
    if kind.scores_on_server:
        for of_server in dataclasses.fields(HTTPSpec):
            options.pop(of_server.name, None)
    return {**entries, "options": options}
