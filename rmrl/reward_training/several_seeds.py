"""Several seeds: each its own run, then an ensemble that one engine serves, or one model.

<out>/seed_1/, ...     the runs, each a folder as `rmrl train-rm` leaves it
<out>/base/            the base of all adapters, with an untrained head
<out>/best/            merge=average: the average of the runs' best weights (arXiv:2401.12187)

An average needs equal starts: further seeds start from <out>/base, whose head is the first seed's.
A seed then differs in the rows' order (and a LoRA's A) alone. An ensemble's members have their own
heads. A pair's loss leaves a score's level open, so members are centred on the held-out rows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.example import Example
from rmrl.reward_training.results import REPORT, adapter_spec, reward_name, reward_spec
from rmrl.reward_training.training import BEST, Outputs
from rmrl.rewards.kinds.ensemble.reward import combined_scores

HOW = ("mean", "min", "lower_bound")


def members(checked: CheckedRewardTraining) -> list[CheckedRewardTraining]:
    """Return a run for each seed, with the same rows held out."""
    config = checked.config
    runs: list[CheckedRewardTraining] = []
    for number in range(config.seeds):
        out = checked.out / f"seed_{number + 1}"
        model = config.model
        if number and config.merge == "average":
            tokenizer = model.tokenizer_path or model.path
            model = replace(model, path=str(checked.base), tokenizer_path=tokenizer)
        trainer = replace(config.trainer, seed=config.trainer.seed + number)
        entries = replace(config, seeds=1, model=model, trainer=trainer, out=str(out))
        runs.append(replace(checked, config=entries, out=out))
    return runs


def is_finished(member: CheckedRewardTraining) -> bool:
    """Tell whether a run has passed its gate. Its card is written last."""
    return (member.out / BEST / "README.md").exists()


def report_of(member: CheckedRewardTraining) -> dict[str, Any]:
    """Return a finished run's report."""
    return json.loads((member.out / REPORT).read_text(encoding="utf-8"))


def level(outputs: Outputs, *, is_free: bool) -> float:
    """Return a member's mean score on the held-out rows, 0 where its level is not free."""
    if not is_free:
        return 0.0
    return float(np.mean([values[0] for responses in outputs for values in responses]))


def combined(runs: Sequence[Outputs], levels: Sequence[float], how: str) -> Outputs:
    """Return the ensemble's outputs, each member's level taken off."""
    levels_M1 = np.asarray(levels)[:, None]
    return [
        [
            combined_scores(np.asarray(same) - levels_M1, how).tolist()
            for same in zip(*responses, strict=True)
        ]
        for responses in zip(*runs, strict=True)
    ]


def agreement(examples: Sequence[Example], runs: Sequence[Outputs]) -> float | None:
    """Return how often two seeds put a held-out pair in the same order, over all seed pairs; None
    without pairs."""
    signs: list[list[float]] = []
    for outputs in runs:
        gaps = [
            rows[each.ends[0]][0] - rows[each.ends[1]][0]
            for each, rows in zip(examples, outputs, strict=True)
            if each.ends is not None
        ]
        signs.append(np.sign(gaps).tolist())
    if not signs[0]:
        return None
    same = [np.equal(first, second).mean() for first, second in combinations(signs, 2)]
    return float(np.mean(same))


def ensemble_section(
    checked: CheckedRewardTraining, runs: Sequence[CheckedRewardTraining], levels: Sequence[float]
) -> dict[str, Any]:
    """Return the section `reward`: the ensemble and its members, adapters on one base."""
    name = reward_name(checked)
    specs: dict[str, Any] = {}
    for number, (run, middle) in enumerate(zip(runs, levels, strict=True), 1):
        centred = {"kind": "scale", "offset": -middle}
        specs[f"{name}_{number}"] = {**adapter_spec(run, reward_spec(run)), "transform": centred}
    ensemble = {"kind": "ensemble", "of": list(specs), "how": "mean"}
    return {"models": [name], "specs": {name: ensemble, **specs}}


def write_average(folders: Sequence[Path], out: Path) -> None:
    """Write one model whose weights are the mean over several models, summed in float32."""
    from safetensors.torch import load_file, save_file

    building = out.with_name(f".{out.name}.averaging")
    shutil.rmtree(building, ignore_errors=True)
    skipped = shutil.ignore_patterns("*.safetensors", "README.md", "adapter")
    shutil.copytree(folders[0], building, ignore=skipped)
    for file in sorted(folders[0].glob("*.safetensors")):
        total = load_file(file)
        dtypes = {name: tensor.dtype for name, tensor in total.items()}
        total = {name: tensor.float() for name, tensor in total.items()}
        for other in folders[1:]:
            for name, tensor in load_file(other / file.name).items():
                total[name] += tensor.float()
        mean = {name: (each / len(folders)).to(dtypes[name]) for name, each in total.items()}
        save_file(mean, building / file.name, metadata={"format": "pt"})
    shutil.rmtree(out, ignore_errors=True)
    building.rename(out)


def judges_of(
    runs: Sequence[Outputs],
    levels: Sequence[float],
    merged: Mapping[str, Outputs],
    *,
    how: Sequence[str] = HOW,
) -> dict[str, Outputs]:
    """Return what the report compares: the merged ones, the ensembles and each seed."""
    ensembles = {f"ensemble, {way.replace('_', ' ')}": combined(runs, levels, way) for way in how}
    seeds = {f"seed {number}": outputs for number, outputs in enumerate(runs, 1)}
    return {**merged, **ensembles, **seeds}
