"""A scoring job's identity: its configuration, the code and models of its rewards, and the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import rmrl
from rmrl.config.identity import changeable_keys, differences, identify
from rmrl.config.schema import ScoreConfig
from rmrl.errors import DataError
from rmrl.files import digest_of
from rmrl.offline.check_scoring import CheckedScoring
from rmrl.rewards.cache.keys import scorer_key
from rmrl.rewards.calibration.contents import contents_of
from rmrl.rewards.specs.spec import RewardSpec

# Functions count with their code, wherever it is.
MAY_CHANGE = changeable_keys(ScoreConfig()) | {"reward.functions_dir"}
"""Keys that the command may change when it resumes a job. The name of a section covers all keys
below it."""

Identity = dict[str, Any]


def identity_of(checked: CheckedScoring) -> Identity:
    """Return {"rmrl", "config", "rewards", "files"} as JSON values. Reads the data files completely
    and a few MiB from each model.

    Raises DataError where a data file cannot be read, ConfigError where a checkpoint cannot.
    """
    config = identify(checked.config, MAY_CHANGE)
    rewards = reward_digests(checked.specs)
    files: list[dict[str, Any]] = []
    for path in checked.files:
        try:
            size = path.stat().st_size
            files.append({"name": path.name, "bytes": size, "digest": digest_of(path)})
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error}); check the path and its permissions"
            ) from error
    return {"rmrl": rmrl.__version__, "config": config, "rewards": rewards, "files": files}


def reward_digests(specs: Sequence[RewardSpec]) -> dict[str, str]:
    """Return name -> sha256 for everything besides the configuration on which the scores depend:
    code, models, server, files. Reads a few MiB from each model."""
    return {spec.name: _reward(spec) for spec in specs}


def what_differs(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return one line per difference, [] for the same job. "there" is `saved`'s value."""
    lines = differences(saved["config"], current["config"], MAY_CHANGE)
    for name in sorted(saved["rewards"].keys() & current["rewards"].keys()):
        if saved["rewards"][name] != current["rewards"][name]:
            lines.append(
                f"reward '{name}': its code or its model was another one there, or a file of it"
            )
    lines += _file_differences(saved["files"], current["files"])
    if saved["rmrl"] != current["rmrl"]:
        lines.append(f"rmrl: version {saved['rmrl']} there, {current['rmrl']} here")
    return lines


def _reward(spec: RewardSpec) -> str:
    """sha256 for everything besides the configuration on which the scores depend: code, models,
    server, calibration, files that the entries name."""
    contents = contents_of(spec)
    code = contents.pop("code", "")
    if spec.function is not None:
        code += f"{spec.function.attribute} {spec.function.code or spec.function.target}"
    models = [*spec.engines.values(), *([spec.remote] if spec.remote is not None else [])]
    keys = [scorer_key(model, code_hash="") for model in models]
    keys += contents.values()
    return hashlib.sha256("\n".join([code, *keys]).encode(errors="surrogatepass")).hexdigest()


def _file_differences(
    saved: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]
) -> list[str]:
    if len(saved) != len(current):
        return [f"data.files: {len(saved)} files there, {len(current)} here"]
    lines: list[str] = [
        f"data.files: {before['name']} with {before['bytes']} bytes there, {now['name']}"
        f" with {now['bytes']} other bytes here"
        for before, now in zip(saved, current, strict=True)
        if before["digest"] != now["digest"]
    ]
    return lines
