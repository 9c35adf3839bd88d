"""What is not asked: rows whose gate is closed, equal responses, responses that the cache knows.
One judge, awake throughout."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.rewards.rig import (
    Sizes,
    Step,
    engine_settings,
    in_turn,
    open_scorer,
    ratios,
    say,
    scored,
    sent,
    spread,
)
from benchmarks.rewards.solutions import Solutions
from rmrl.config.schema import RewardCacheConfig, RewardConfig, RewardEngineConfig
from rmrl.rewards.session.items import ResponseRow

CLOSED = {"gate_0": 0.0, "gate_50": 0.5, "gate_90": 0.9}
"""Share of rows that the rule refuses."""
DISTINCT = 4
"""One response in so many differs from the others: 75 % are duplicates."""
SIDES = ("all_asked", *CLOSED, "duplicates_75")
CACHE_HITS = 5


def config_of(sizes: Sizes) -> RewardConfig:
    """Rows of data_source `all_asked` go to the judge, those of `gated` to a rule and, where it
    holds, to the same judge."""
    return RewardConfig(
        models=["gsm8k", "judge", "gated_judge"],
        specs={
            "judge": {"path": sizes.judge, "function": "answer_judge"},
            "gated_judge": {"path": sizes.judge, "function": "answer_judge", "gate": ["gsm8k"]},
        },
        by_source={
            "all_asked": {"models": ["judge"]},
            "gated": {"models": ["gsm8k", "gated_judge"]},
        },
        max_missing=1.0,
        engine=RewardEngineConfig(**engine_settings(threads=sizes.threads)),
    )


async def measure(sizes: Sizes, texts: Solutions) -> dict[str, Any]:
    """Requests that reach the model and seconds of a step, against the same batch without a gate
    and all different."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    requests: dict[str, list[int]] = {side: [] for side in SIDES}
    async with open_scorer(config_of(sizes)) as scorer:
        for side in ("all_asked", "gate_50"):  # the engine, and the workers of rules
            await scored(scorer, _rows(side, sizes.items, texts))
        for number in range(sizes.rounds):
            for side in in_turn(SIDES, number):
                step = await scored(scorer, _rows(side, sizes.items, texts))
                seconds[side].append(step.wall_s)
                requests[side].append(_asked(side, step))
            say(
                f"savings {number + 1}: "
                + ", ".join(f"{side} {values[-1]:.2f} s" for side, values in seconds.items())
            )
    return {
        "responses": sizes.items,
        "sides": {
            side: {
                "requests": spread(requests[side]),
                "wall_s": spread(seconds[side]),
                "over_all_asked": ratios(seconds[side], seconds["all_asked"]),
            }
            for side in SIDES
        },
        "cache": await measure_cache(sizes, texts),
    }


def _rows(side: str, count: int, texts: Solutions) -> list[ResponseRow]:
    if side == "duplicates_75":
        return texts.batch(count, "all_asked", distinct=max(1, count // DISTINCT))
    if side in CLOSED:
        return texts.batch(count, "gated", closed=round(count * CLOSED[side]))
    return texts.batch(count, "all_asked")


def _asked(side: str, step: Step) -> int:
    return sent(step, "gated_judge" if side in CLOSED else "judge")


async def measure_cache(sizes: Sizes, texts: Solutions) -> dict[str, Any]:
    """The same rows twice: by an awake engine, and by a scorer opened anew on the cache file that
    this left."""
    rows = texts.batch(sizes.items, "")
    with tempfile.TemporaryDirectory() as folder:
        config = RewardConfig(
            models=["judge", "relevance"],
            specs={
                "judge": {"path": sizes.judge, "function": "answer_judge"},
                "relevance": {"path": sizes.scalar},
            },
            max_missing=1.0,
            engine=RewardEngineConfig(**engine_settings(threads=sizes.threads)),
            cache=RewardCacheConfig(path=str(Path(folder) / "verdicts.sqlite")),
        )
        async with open_scorer(config) as scorer:
            await scored(scorer, texts.batch(sizes.items, ""))
            asked = await scored(scorer, rows)
        async with open_scorer(config) as scorer:
            known = [await scored(scorer, rows) for _ in range(CACHE_HITS + 1)]
    shares = [
        step.batch.metrics[f"score/{name}/cache_hits"]
        for step in known
        for name in ("judge", "relevance")
    ]
    say(f"cache: asked {asked.wall_s:.2f} s, known {known[-1].wall_s:.3f} s")
    ms = 1000.0 / sizes.items
    return {
        "responses": sizes.items,
        "smallest_share_of_hits": min(shares),
        "engines_loaded": sum(step.loads for step in known),
        "same_scores": all(_values(step) == _values(asked) for step in known),
        "asked_ms_per_response": asked.wall_s * ms,
        "first_hit_ms_per_response": known[0].wall_s * ms,
        "hit_ms_per_response": spread([step.wall_s * ms for step in known[1:]]),
        "hit_over_asked": spread([step.wall_s / asked.wall_s for step in known[1:]]),
    }


def _values(step: Step) -> list[list[float | None]]:
    return [[result.value for result in column] for column in step.batch.scores.results]
