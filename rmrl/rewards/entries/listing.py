"""The resolved rewards as a table for people, and a table with the first scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from rmrl.columns import aligned
from rmrl.rewards.catalogue.find import preset_of
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import chain_of
from rmrl.types import RewardBatch

_HEAD = (
    "reward",
    "kind",
    "weight",
    "combine",
    "transform",
    "reads",
    "counts where",
    "on missing",
    "runs on",
)


def reward_table(specs: Sequence[RewardSpec]) -> str:
    """Return one line per component, and one per licence that restricts a preset's use. Equal
    entries under "runs on" share one engine."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for spec in specs:
        transform = "-"
        if spec.transforms:
            transform = ", ".join(chain_of(spec.transforms, where=spec.name).names)
        weight = f"part of {spec.part_of}" if spec.part_of else f"{spec.weight:g}"
        conditions = [f"{gate} holds" for gate in spec.gates]
        for name, score in spec.counts_at.items():
            conditions.append(f"{name} is {score:g}, else 0")
        if spec.sources is not None:
            others = [source for source, weight in spec.sources.named.items() if weight is None]
            if spec.sources.default is None:
                conditions.append(f"source is {' or '.join(spec.sources)}")
            elif others:
                conditions.append(f"source is not {' or '.join(others)}")
        where = " and ".join(conditions) or "everywhere"
        if spec.watch is not None:
            where = f"{spec.watch}, {where}"
        row = (
            spec.name,
            spec.kind,
            weight,
            spec.combine_op,
            transform,
            "-" if REWARD_KINDS[spec.kind].combines else str(spec.reads),
            where,
            str(spec.on_missing),
            _runs_on(spec),
        )
        rows.append(row)
    lines = ["rewards", *aligned(rows)]
    for spec in specs:
        licence = preset_of(spec.preset).licence if spec.preset else None
        if licence is not None and licence.notice:
            lines.append(f"  licence of {spec.name}: {licence.name}; {licence.notice}")
    return "\n".join(lines)


def observed_table(rewards: RewardBatch) -> str:
    """Return each component's mean and (population) standard deviation in one batch. Scales that
    differ much call for a transform."""
    rows: list[tuple[str, ...]] = [("reward", "weight", "mean", "std", "min", "max", "no verdict")]
    columns_BC = rewards.scores.values_BC if rewards.columns_BC is None else rewards.columns_BC
    for c, (name, results) in enumerate(
        zip(rewards.scores.names, rewards.scores.results, strict=True)
    ):
        values = columns_BC[:, c][np.isfinite(columns_BC[:, c])]
        statistics = ["-"] * 4
        if len(values):
            numbers = (values.mean(), values.std(), values.min(), values.max())
            statistics = [f"{number:.3g}" for number in numbers]
        missing = Counter(result.status for result in results)
        del missing["ok"]
        causes = ", ".join(f"{n} {status}" for status, n in missing.most_common())
        rows.append((name, f"{rewards.weights_C[c]:g}", *statistics, causes or "0"))
    return "\n".join(["first scores", *aligned(rows)])


def _runs_on(spec: RewardSpec) -> str:
    if spec.remote is not None:
        return f"{urlsplit(spec.remote.url).netloc} ({spec.remote.wire})"
    if not spec.engines:
        if REWARD_KINDS[spec.kind].combines:
            return "its members"
        return REWARD_KINDS[spec.kind].works_in or f"worker processes, {spec.timeout_s:g} s each"
    engines: list[str] = []
    for engine in spec.engines.values():
        pool = f", pool {engine.pool}" if engine.pool else ""
        model = Path(engine.path).name
        if engine.by_policy:
            engines.append(f"the policy ({model}, its rollout engines{pool})")
            continue
        kind = f"{engine.name} {engine.runner}, {engine.precision}{pool}"
        if engine.adapter:
            model = f"{model} + LoRA {Path(engine.adapter).name}"
        engines.append(f"{model} ({kind}, {spec.residency})")
    return " + ".join(engines)
