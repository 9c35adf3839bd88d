"""A scorer made as `main_score` makes it, and its steps measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.assemble.build import standalone_scorer
from rmrl.assemble.memory import budget_of, budgets, prepare_engines, scoring_plan
from rmrl.assemble.resolve import resolve
from rmrl.cluster.devices import local_devices
from rmrl.config.schema import RewardConfig, ScoreTrainerConfig
from rmrl.errors import ConfigError
from rmrl.logs import command_log
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.session.scorer import Scorer
from rmrl.types import Metrics, RewardBatch

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = Path(__file__).resolve().parent / "functions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured, and with what."""

    judge: str
    scalar: str
    embedder: str
    items: int
    """Responses of a batch of `sharing` and `savings`."""
    model_items: int
    """Responses of a batch of `models` and `plain`."""
    rounds: int
    """Measured rounds of `sharing` and `savings`."""
    threads: int


@asynccontextmanager
async def open_scorer(config: RewardConfig) -> AsyncIterator[Scorer]:
    """A scorer with processes of its own, ended with the block. Raises ConfigError with all
    problems."""
    devices = local_devices("auto")
    device = devices.kind
    trainer = ScoreTrainerConfig()
    rewards = resolve(
        config, device=device, shipped_functions=ROOT / "reward_functions", trust_remote_code=False
    )
    if rewards.problems:
        raise ConfigError(rewards.problems)
    engines = prepare_engines(rewards.specs, trainer, devices)
    plan = scoring_plan(engines, **budgets(trainer, devices))
    plan.check()
    with command_log():
        async with standalone_scorer(
            rewards.specs,
            config,
            engines=engines,
            budget=budget_of(plan),
            device=device,
            trainer=trainer,
            ray_init={},
        ) as scorer:
            yield scorer


def say(line: str) -> None:
    """A line with the time of day."""
    print(f"  {time.strftime('%H:%M:%S')} {line}", flush=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One batch scored, in seconds; `score_s` is what is left of `wall_s` besides the other
    parts."""

    wall_s: float
    load_s: float
    wake_s: float
    score_s: float
    put_away_s: float
    batch: RewardBatch

    @property
    def loads(self) -> float:
        """Engines loaded."""
        return total(self.batch.metrics, "loads")

    def parts(self) -> dict[str, float]:
        """The split, for the results."""
        return {
            name: getattr(self, name)
            for name in ("wall_s", "load_s", "wake_s", "score_s", "put_away_s")
        } | {"loads": self.loads}


async def scored(scorer: Scorer, rows: Sequence[ResponseRow]) -> Step:
    """Score `rows` and say where the time went."""
    started = time.perf_counter()
    batch = await scorer.score(rows)
    return split(time.perf_counter() - started, batch)


def split(wall_s: float, batch: RewardBatch) -> Step:
    """Parts of `wall_s` by the batch's metrics. Engines that share devices take turns, so their
    parts do not overlap."""
    load_s, wake_s = total(batch.metrics, "load_s"), total(batch.metrics, "wake_s")
    put_away_s = total(batch.metrics, "unload_s") + total(batch.metrics, "sleep_s")
    return Step(wall_s, load_s, wake_s, wall_s - load_s - wake_s - put_away_s, put_away_s, batch)


def total(metrics: Metrics, what: str) -> float:
    """Sum of engine/<label>/<what> over all engines."""
    return sum(
        value
        for key, value in metrics.items()
        if key.startswith("engine/") and key.endswith(f"/{what}")
    )


def sent(step: Step, name: str) -> int:
    """Requests of component `name` that reached its engine: asked, not equal to another one, and
    not known to the cache."""
    column = step.batch.scores.results[step.batch.scores.names.index(name)]
    asked = sum(result.status != "skipped" for result in column)
    saved = sum(
        step.batch.metrics.get(f"score/{name}/{kind}", 0.0) for kind in ("duplicates", "cache_hits")
    )
    return round(asked * (1.0 - saved))


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, extremes, and the values themselves."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "values": list(values),
    }


def ratios(over: Sequence[float], under: Sequence[float]) -> dict[str, Any]:
    """`spread` of over / under, round by round."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def in_turn(sides: Sequence[str], number: int) -> list[str]:
    """The sides in another order each round: rotated, and every second round backwards."""
    start = number // 2 % len(sides)
    order = [*sides[start:], *sides[:start]]
    return order[::-1] if number % 2 else order


def engine_settings(**more: Any) -> Mapping[str, Any]:
    """Settings of all engines here; see RewardEngineConfig."""
    return {"max_model_len": 1024, **more}
