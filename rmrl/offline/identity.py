"""What makes a scoring job this job: its configuration, the code and models of its rewards, and the
rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rmrl
from rmrl.config.identity import changeable_keys, differences, identify
from rmrl.config.schema import ScoreConfig
from rmrl.errors import DataError
from rmrl.files import digest_of
from rmrl.offline.check import CheckedScoring
from rmrl.rewards.cache.keys import scorer_key
from rmrl.rewards.specs.spec import RewardSpec

# Functions count with their code, wherever it is.
MAY_CHANGE = changeable_keys(ScoreConfig()) | {"reward.functions_dir"}
"""Keys (a section's name stands for all below it) that the command may set otherwise when it goes
on."""

Identity = dict[str, Any]


def identity_of(checked: CheckedScoring) -> Identity:
    """JSON: {"rmrl", "config", "rewards", "files"}. Reads the data files whole and a few MiB of
    each model.

    Raises DataError where a data file cannot be read, ConfigError where a checkpoint cannot.
    """
    return {
        "rmrl": rmrl.__version__,
        "config": identify(checked.config, MAY_CHANGE),
        "rewards": {spec.name: _reward(spec) for spec in checked.specs},
        "files": [_file(path) for path in checked.files],
    }


def what_differs(known: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """One line for each difference; [] where the job is the same."""
    lines = differences(known["config"], ours["config"], MAY_CHANGE)
    for name in sorted(known["rewards"].keys() & ours["rewards"].keys()):
        if known["rewards"][name] != ours["rewards"][name]:
            lines.append(f"reward '{name}': its code or its model was another one there")
    lines += _other_files(known["files"], ours["files"])
    if known["rmrl"] != ours["rmrl"]:
        lines.append(f"rmrl: version {known['rmrl']} there, {ours['rmrl']} here")
    return lines


def _reward(spec: RewardSpec) -> str:
    """sha256 of what gives the reward's numbers besides the configuration: its code, its models,
    its server."""
    code = spec.dropin.code_hash if spec.dropin is not None else ""
    if spec.function is not None:
        code += f"{spec.function.attribute} {spec.function.code or spec.function.target}"
    models = [*spec.engines.values(), *([spec.remote] if spec.remote is not None else [])]
    keys = [scorer_key(model, code_hash="") for model in models]
    return hashlib.sha256("\n".join([code, *keys]).encode(errors="surrogatepass")).hexdigest()


def _file(path: Path) -> dict[str, Any]:
    try:
        return {"name": path.name, "bytes": path.stat().st_size, "digest": digest_of(path)}
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error}); check the path and its permissions"
        ) from error


def _other_files(
    known: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]
) -> list[str]:
    if len(known) != len(ours):
        return [f"data.files: {len(known)} files there, {len(ours)} here"]
    return [
        f"data.files: {there['name']} with {there['bytes']} bytes there, {here['name']} with"
        f" {here['bytes']} other bytes here"
        for there, here in zip(known, ours, strict=True)
        if there["digest"] != here["digest"]
    ]
