"""Slopes by hand, and the hint by simulation: silence on noise, and a hint when it happens."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from rmrl.config.schema.reward import RewardMonitorConfig
from rmrl.rewards.scoring.monitor import Monitor
from rmrl.rewards.scoring.trend import LONGEST, Opposition, Slope, normal_quantile
from rmrl.types import RewardBatch, ScoreResult, Scores

SKIPPED = ScoreResult(value=None, status="skipped")


def test_a_slope_by_hand() -> None:
    # x = -1.5 -.5 .5 1.5, y = 1 3 2 6 around 3: xy = 7, xx = 5, b = 1.4; residuals .1 .7 -1.7 .9:
    # their squares add up to 4.2, se = sqrt(4.2 / 2 / 5) = 0.648, t = 2.16
    slope = Slope.of([1, 2, 3, 4], [1.0, 3.0, 2.0, 6.0], [5, 5, 5, 5])
    assert slope.per_step == pytest.approx(1.4)
    # n = 2: 17 / 19 * sqrt(2 ln(1 + 2.1602^2 / 2)) = 1.3884
    assert slope.evidence == pytest.approx(1.3884, abs=1e-4)


def test_a_step_of_many_rows_weighs_more() -> None:
    # the last mean is one row's: weighted means are those of 0, 0, 0 with 99 rows each, nearly
    even = Slope.of([1, 2, 3, 4], [0.0, 0.0, 0.0, 1.0], [1, 1, 1, 1])
    weighted = Slope.of([1, 2, 3, 4], [0.0, 0.0, 0.0, 1.0], [99, 99, 99, 1])
    assert even.per_step == pytest.approx(0.3)
    assert weighted.per_step < 0.02


def test_constants_and_perfect_lines() -> None:
    assert Slope.of([1, 2, 3], [0.3, 0.1 + 0.2, 0.3], [1, 1, 1]) == Slope(0.0, 0.0)
    assert Slope.of([1, 2, 3], [0.0, 0.0, 0.0], [1, 1, 1]) == Slope(0.0, 0.0)
    assert Slope.of([1, 2, 3], [3.0, 2.0, 1.0], [1, 1, 1]) == Slope(-1.0, -math.inf)


def test_quantiles_of_t_as_in_tables() -> None:
    # one-sided 0.001 and 0.0005 (normal: 3.090 and 3.291) of 6, 14 and 30 degrees of freedom
    for t, freedom, z in ((5.208, 6, 3.090), (3.787, 14, 3.090), (3.646, 30, 3.291)):
        assert normal_quantile(t, freedom) == pytest.approx(z, abs=0.02)
        assert normal_quantile(-t, freedom) == -normal_quantile(t, freedom)


def batch(reward_B: np.ndarray, watched: list[float | None]) -> RewardBatch:
    weak = tuple(ScoreResult(value=float(value)) for value in reward_B)
    truth = tuple(SKIPPED if value is None else ScoreResult(value=value) for value in watched)
    count = len(reward_B)
    takes_part_BC = np.column_stack([np.ones(count, dtype=bool), np.zeros(count, dtype=bool)])
    return RewardBatch(
        scores=Scores(names=("weak", "truth"), results=(weak, truth)),
        weights_C=np.array([1.0, 0.0]),
        rewards_B=reward_B,
        keep_B=np.ones(count, dtype=bool),
        takes_part_BC=takes_part_BC,
    )


def simulated(seed: int, step: int, *, opposed: float, turn: int | None = None) -> RewardBatch:
    """32 rewards, and a watcher asked about 4 rows; what a step's prompts share moves both, by
    `opposed` (0..1) in opposite directions. From `turn` on one rises and the other falls."""
    rng = np.random.default_rng([seed, step])
    shared, other = 0.3 * rng.standard_normal(2)
    drift = 0.0 if turn is None else 0.04 * max(step - turn, 0)
    reward_B = 0.5 * rng.standard_normal(32) + shared + drift
    mean = -opposed * shared + math.sqrt(1 - opposed**2) * other - drift
    watched: list[float | None] = [None] * 32
    for position in rng.choice(32, 4, replace=False):
        watched[position] = float(mean + 0.5 * rng.standard_normal())
    return batch(reward_B, watched)


def heard(monitor: Monitor, steps: range, **how: float) -> list[tuple[int, str]]:
    """Hints of the watcher by step."""
    hints: list[tuple[int, str]] = []
    for step in steps:
        rewards = simulated(step=step, **how)  # type: ignore[arg-type]
        for line in monitor.observe(step, rewards.scores, [10] * 32, rewards=rewards):
            if "watcher" in line:
                hints.append((step, line))
    return hints


@pytest.mark.parametrize("opposed", [0.0, 1.0])
def test_noise_gives_no_hint(opposed: float) -> None:
    for seed in range(30):
        monitor = Monitor(RewardMonitorConfig(divergence=-1.0))
        assert heard(monitor, range(1, 151), seed=seed, opposed=opposed) == []


def test_a_hint_comes_soon_after_the_turn() -> None:
    first: list[int] = []
    for seed in range(20):
        monitor = Monitor(RewardMonitorConfig(divergence=-1.0))
        first.append(heard(monitor, range(1, 121), seed=seed, opposed=0.5, turn=60)[0][0])
    # At step 80 both have moved by 0.8; a step's mean of the watcher has a standard deviation of
    # sqrt(0.3^2 + 0.5^2 / 4) = 0.39.
    assert min(first) > 65
    assert max(first) < 100
    assert 74 <= float(np.median(first)) <= 90


@pytest.mark.parametrize(
    ("reward", "watcher"), [(1.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)]
)
def test_both_must_move_and_in_their_directions(reward: float, watcher: float) -> None:
    opposition = Opposition()
    for step in range(200):
        noise = np.random.default_rng(step).standard_normal((2, 8))
        opposition.add(step, 0.1 * reward * step + noise[0], 0.1 * watcher * step + noise[1])
        assert opposition.found(4.0) is None
    assert len(opposition.steps) == LONGEST


def test_the_hint_in_words() -> None:
    monitor = Monitor(RewardMonitorConfig(divergence=-1.0))
    lines: list[str] = []
    for step in range(10, 170, 10):
        # asked every 10 steps about rows 1, 2 and 3; the means are 0.1 step and 5 - 0.01 step
        noise = 0.01 * (step % 20 - 10)
        rewards = batch(
            np.array([0.0, 0.1, 0.2, 0.3]) + 0.1 * step + noise,
            [4.0 - 0.01 * step + noise, 5.0 - 0.01 * step, 6.0 - 0.01 * step, None],
        )
        lines += monitor.observe(step, rewards.scores, [3, 4, 3, 4], rewards=rewards)
    # 8 steps from 10 to 80 are enough; nothing is said again within 20 steps, so at 100, 120, ...
    assert lines[0].startswith(
        "step 80: look at samples 1, 2 and 3 of this step in samples.jsonl: the reward rises (+0.1 a"
        " step) and the watcher truth falls (-0.01) since step 10, over 8 steps in which it was"
        " asked: the policy probably exploits the reward"
    )
    assert [line.split(":")[0] for line in lines] == [f"step {n}" for n in range(80, 170, 20)]


def test_a_resumed_monitor_hears_the_same() -> None:
    how = {"seed": 3, "opposed": 0.5, "turn": 20}
    whole = heard(Monitor(RewardMonitorConfig(divergence=-1.0)), range(1, 81), **how)
    assert whole
    before = Monitor(RewardMonitorConfig(divergence=-1.0))
    first = heard(before, range(1, 31), **how)
    after = Monitor(RewardMonitorConfig(divergence=-1.0))
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first + heard(after, range(31, 81), **how) == whole


def test_a_state_of_before_there_were_watchers() -> None:
    monitor = Monitor(RewardMonitorConfig())
    monitor.load_state_dict({"steps": [], "said": {}})
    assert monitor.state_dict()["watched"] == {}
