"""One to four different models: where the time of a step goes and how much memory the engines hold,
by how they are put away.

unload    put away after every use, the process ends: memory of one engine at a time
sleep     put away after every use, the process stays without weights and cache
stay      nothing is put away while there is memory for it
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rewards.memory import Processes, engine_processes, peak_memory
from benchmarks.rewards.plain import compared, one_after_another, summary
from benchmarks.rewards.rig import Sizes, Step, engine_settings, open_scorer, say, scored, spread
from benchmarks.rewards.solutions import Solutions
from rmrl.config.schema import RewardConfig, RewardEngineConfig
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.session.scorer import Scorer

REWARDS = ("answer_judge", "relevance", "nearness", "second_judge")
"""In the order in which k grows."""
MODES: Mapping[str, Mapping[str, str]] = {
    "unload": {"residency": "on_demand", "put_away": "unload"},
    "sleep": {"residency": "on_demand", "put_away": "sleep2"},
    "stay": {"residency": "auto"},
}
UP = (1, 2, 3, 4)
PARTS = ("load_s", "wake_s", "score_s", "put_away_s")


@dataclass(slots=True)
class Run:
    """The steps of one mode, by k, in order."""

    mode: str
    scorer: Scorer
    processes: Processes
    steps: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: {k: [] for k in UP})

    async def step(self, k: int, rows: Sequence[ResponseRow]) -> Step:
        """Score with the first k models; time and memory are kept."""
        with peak_memory(self.processes) as peak:
            step = await scored(self.scorer, rows)
        self.steps[k].append({**step.parts(), "peak_bytes": peak.bytes})
        parts = ", ".join(f"{part.removesuffix('_s')} {step.parts()[part]:.2f} s" for part in PARTS)
        say(f"{self.mode}, k={k}: {parts}, peak {peak.bytes / 2**20:.0f} MiB")
        return step


def config_of(sizes: Sizes, second: Path, mode: str) -> RewardConfig:
    """Rows of data_source "k<n>" go to the first n rewards."""
    specs = {
        "answer_judge": {"path": sizes.judge},
        "relevance": {"path": sizes.scalar},
        "nearness": {
            "kind": "similarity",
            "path": sizes.embedder,
            "reference": "rm_prompt",
            "curve": [],
        },
        "second_judge": {"path": str(second), "function": "answer_judge"},
    }
    return RewardConfig(
        models=list(REWARDS),
        specs=specs,
        by_source={f"k{k}": {"models": list(REWARDS[:k])} for k in UP},
        max_missing=1.0,
        engine=RewardEngineConfig(**engine_settings(threads=sizes.threads, **MODES[mode])),
    )


async def measure(sizes: Sizes, texts: Solutions, second: Path) -> dict[str, Any]:
    """{models: by mode and k, plain: the way without rmrl, its programs in turn with steps of the
    mode `unload`}."""
    runs: dict[str, Run] = {}
    comparisons: list[dict[str, Any]] = []
    async with _running("unload", sizes, second) as run:
        runs["unload"] = run
        for k in UP[:-1]:
            await run.step(k, texts.batch(sizes.model_items, f"k{k}"))
        for number in range(2):
            rows = texts.batch(sizes.model_items, "k4")
            ours = await run.step(4, rows)
            say("the same rows without rmrl")
            plain = await asyncio.to_thread(
                one_after_another, sizes, second, rows, singles_first=number == 0
            )
            comparisons.append(compared(ours, plain))
    for mode in ("sleep", "stay"):
        async with _running(mode, sizes, second) as run:
            runs[mode] = run
            for k in (*UP, *UP, *UP[::-1]):  # the first time up, each k loads one more engine
                await run.step(k, texts.batch(sizes.model_items, f"k{k}"))
    by_mode = {
        mode: {k: told(mode, steps) for k, steps in run.steps.items()} for mode, run in runs.items()
    }
    later = {
        mode: statistics.median(step["wall_s"] for step in settled(mode, runs[mode].steps[4]))
        for mode in ("sleep", "stay")
    }
    alone = by_mode["unload"][1]["peak_bytes"]
    for found in by_mode.values():
        for k in UP:
            found[k]["peak_over_largest_alone"] = found[k]["peak_bytes"] / alone
    return {
        "models": {
            "responses": sizes.model_items,
            "rewards": list(REWARDS),
            "largest_alone_peak_bytes": alone,
            "by_mode": by_mode,
        },
        "plain": summary(comparisons, later),
    }


@asynccontextmanager
async def _running(mode: str, sizes: Sizes, second: Path) -> AsyncIterator[Run]:
    async with open_scorer(config_of(sizes, second, mode)) as scorer:
        yield Run(mode, scorer, engine_processes())


def settled(mode: str, steps: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The steps in which nothing is loaded for the first time; engines that are unloaded after use
    know no first time."""
    return steps if mode == "unload" else steps[1:]


def told(mode: str, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Spread of every part of the settled steps, the first step by itself, and the peak while k
    engines were there.

    What is only put to sleep, or stays, is still there in later steps with a smaller k: of these
    modes the first step's peak is told.
    """
    return {
        **{
            part: spread([step[part] for step in settled(mode, steps)])
            for part in ("wall_s", *PARTS, "loads")
        },
        "first": dict(steps[0]),
        "peak_bytes": max(
            step["peak_bytes"] for step in (steps if mode == "unload" else steps[:1])
        ),
    }
