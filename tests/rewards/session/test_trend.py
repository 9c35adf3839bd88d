"""Slopes by hand, and the hint by simulation: silence on noise, and a hint when it happens."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from rmrl.config.schema.reward import RewardMonitorConfig
from rmrl.rewards.session.monitor import Monitor
from rmrl.rewards.session.trend import LONGEST, Line, Opposition, normal_quantile
from rmrl.types import RewardBatch, ScoreResult, Scores

SKIPPED = ScoreResult(value=None, status="skipped")


def line(means: list[float], rows: list[int] | None = None) -> Line:
    numbers = range(len(means))
    table = list(zip(numbers, means, rows or [5] * len(means), strict=True))
    return Line.through(table, 1)


# x = -3.5 .. 3.5 with sum x^2 = 42; the residuals 1 -1 -1 1 1 -1 -1 1 sum up to 0, and so do their
# products with x: 3.5 * (-1 + 1) + 2.5 * (1 - 1) + ...
SAW = [1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0]


def test_a_slope_by_hand() -> None:
    slope = line([0.5 * x + u for x, u in enumerate(SAW)], [1] * 8)
    assert slope.slope == pytest.approx(0.5)
    np.testing.assert_allclose(slope.residual_N, SAW)
    # r_1 = (-1 + 1 - 1 + 1 - 1 + 1 - 1) / 8 = -1/8; rho = (-1 + 2) / 4 = 1/4, and three errors of
    # sqrt((1 - 1/16) / 8) = 0.3423 make it 1.277: no more than 1
    assert slope.persistence == 1.0
    # e = u_t - u_{t-1} = -2 0 2 0 -2 0 2: s^2 = 16 / 5
    assert slope.innovation(1.0) == pytest.approx(3.2)
    # tails of x: 3.5 6 7.5 8 7.5 6 3.5 and 0: their squares add up to 273
    # t = 0.5 * 42 / sqrt(3.2 * 273) = 0.7105 with 5 degrees: z = 41 / 43 sqrt(5 ln(1 + t^2 / 5))
    assert slope.evidence() == pytest.approx(0.6612, abs=1e-3)


def test_the_noise_of_the_steps_before() -> None:
    steady = line([0.01, -0.01] * 32, [1] * 64)
    # r_1 is nearly -1, so rho is 3 / sqrt(64)
    assert steady.persistence == pytest.approx(3 / 8)
    fall = line([0.0, 0.0, 0.0, 0.0, -1.0, -1.0, -1.0, -1.0], [1] * 8)
    # b = -8 / 42; alone a step is as good as a walk, after a steady time it is a fall
    assert fall.slope == pytest.approx(-8 / 42)
    assert -2 < fall.evidence() < 0
    assert fall.evidence(before=steady) < -2.5
    # and noise that was larger before counts
    restless = line([3.0, -3.0] * 32, [1] * 64)
    assert -1 < fall.evidence(before=restless) < 0


def test_a_step_of_many_rows_weighs_more() -> None:
    # the last mean is one row's: weighted means are those of 0 with 99 rows each, nearly
    even = line([0.0] * 7 + [1.0], [1] * 8)
    weighted = line([0.0] * 7 + [1.0], [99] * 7 + [1])
    assert even.slope == pytest.approx(3.5 / 42)
    assert weighted.slope < 0.01


def test_constants_and_perfect_lines() -> None:
    assert line([0.3, 0.1 + 0.2] * 4).evidence() == 0.0
    assert line([0.0] * 8).evidence() == 0.0
    assert line([float(-x) for x in range(9)]).evidence() == -math.inf


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


def watching() -> Monitor:
    return Monitor(RewardMonitorConfig(divergence=-1.0), watchers=["truth"])


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
    for seed in range(8):
        monitor = watching()
        assert heard(monitor, range(1, 151), seed=seed, opposed=opposed) == []


def test_a_hint_comes_soon_after_the_turn() -> None:
    first: list[int] = []
    for seed in range(8):
        monitor = watching()
        first.append(heard(monitor, range(1, 121), seed=seed, opposed=0.5, turn=60)[0][0])
    # At step 80 both have moved by 0.8; a step's mean of the watcher has a standard deviation of
    # sqrt(0.3^2 + 0.5^2 / 4) = 0.39.
    assert min(first) > 65
    assert max(first) < 110
    assert 80 <= float(np.median(first)) <= 102


@pytest.mark.parametrize(("stays", "most"), [(0.5, 0), (0.8, 1), (0.9, 1), (1.0, 2)])
def test_noise_that_stays_a_while_gives_few_false_hints(stays: float, most: int) -> None:
    """The reward rises; the watcher has no trend and follows u_t = stays * u_{t-1} + e_t. Runs of
    200 steps, 10 of each."""
    false_hints = 0
    for seed in range(10):
        rng = np.random.default_rng([seed, round(100 * stays)])
        opposition = Opposition()
        level = 0.0
        for step in range(200):
            level = stays * level + rng.standard_normal()
            reward = 0.01 * step + 0.05 * rng.standard_normal()
            opposition.add(step, np.full(32, reward), np.full(4, level))
            if opposition.found() is not None:
                false_hints += 1
                break
    assert false_hints <= most


@pytest.mark.parametrize("sudden", [1.0, 2.0, 4.0])
def test_a_fall_within_few_steps_is_found_soon(sudden: float) -> None:
    """From 0.5 to 0 around step 40, along a logistic curve."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        opposition = Opposition()
        found: list[int] = []
        for step in range(80):
            noise = 0.03 * rng.standard_normal(2)
            level = 0.5 / (1 + math.exp((step - 40) / sudden))
            opposition.add(
                step, np.full(32, 0.01 * step - level + noise[0]), np.full(4, level + noise[1])
            )
            if opposition.found() is not None:
                found.append(step)
        assert 36 <= found[0] <= 55


def test_the_correlation_within_steps_by_hand() -> None:
    opposition = Opposition()
    # rewards less their mean: -1 -1 1 1; verdicts less theirs: 1/4 1/4 1/4 -3/4
    verdicts = np.array([1.0, 1.0, 1.0, 0.0])
    found: list[float | None] = []
    for step in range(13):
        rewards = np.array([0.0, 0.0, 2.0, 2.0]) + 10 * step
        opposition.add(step, rewards, verdicts, both_N2=np.column_stack([rewards, verdicts]))
        found.append(opposition.against())
    # r = -1 / sqrt(4 * 3/4), wherever the step's mean is; atanh(r) = -0.6585, and with 3 of a step
    # it is 3.84 errors below 0 after 12 steps and 4.005 after 13
    assert found == [None] * 12 + [pytest.approx(-1 / math.sqrt(3))]
    # Only the last 16 count, and steps in which a side is constant say nothing.
    for step in range(13, 26):
        rewards = np.array([0.1 + 0.2, 0.3, 0.3, 0.3])
        opposition.add(step, rewards, verdicts, both_N2=np.column_stack([rewards, verdicts]))
    assert opposition.against() is None


def given_in(seed: int, *, opposed: bool) -> list[int]:
    """Steps of 120 in which the hint holds. A policy that gives in from step 20 on, fast at first:
    the reward of 48 responses rises by 4 (1 - exp(-t / 15)); the share that the watcher likes falls
    from 0.6 to 0.1 in the same way. `opposed`: it likes those more that have less reward."""
    rng = np.random.default_rng(seed)
    opposition = Opposition()
    found: list[int] = []
    for step in range(120):
        left = math.exp(-max(step - 20, 0) / 15)
        row = rng.standard_normal(48)
        chance = rng.random(48)
        if opposed:
            chance += 0.15 * np.sign(row)
        rewards = 4 * (1 - left) + row
        verdicts = (chance < 0.1 + 0.5 * left).astype(np.float64)
        opposition.add(step, rewards, verdicts, both_N2=np.column_stack([rewards, verdicts]))
        if opposition.found() is not None:
            found.append(step)
    return found


def test_a_fall_along_a_curve_is_found_soon_where_the_reward_goes_against_the_watcher() -> None:
    # The share is 0.35, half of the way, at step 30.
    for seed in range(4):
        assert 24 <= given_in(seed, opposed=True)[0] <= 40
        assert given_in(seed, opposed=False)[:1] == [] or given_in(seed, opposed=False)[0] > 40


@pytest.mark.parametrize(("stays", "opposed"), [(0.0, 0.0), (0.9, 0.0), (1.0, 0.0), (0.0, 0.3)])
def test_without_a_fall_rows_seldom_make_a_hint(stays: float, opposed: float) -> None:
    """As above, a level without a trend, with 26 rows about it that correlate with the reward by
    minus `opposed`."""
    for seed in range(4):
        rng = np.random.default_rng([seed, round(100 * stays)])
        opposition = Opposition()
        level = 0.0
        for step in range(120):
            level = stays * level + 0.1 * rng.standard_normal()
            row, other = rng.standard_normal((2, 26))
            rewards = 0.01 * step + 0.05 * rng.standard_normal() + 0.5 * row
            verdicts = level + 0.5 * (math.sqrt(1 - opposed**2) * other - opposed * row)
            opposition.add(step, rewards, verdicts, both_N2=np.column_stack([rewards, verdicts]))
            assert opposition.found() is None


def test_a_component_without_watch_is_not_compared() -> None:
    """A measure of weight 0 of which less is better may fall."""
    how = {"seed": 0, "opposed": 0.5, "turn": 20}
    assert heard(watching(), range(1, 81), **how)
    assert heard(Monitor(RewardMonitorConfig(divergence=-1.0)), range(1, 81), **how) == []


@pytest.mark.parametrize(
    ("reward", "watcher"), [(1.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)]
)
def test_both_must_move_and_in_their_directions(reward: float, watcher: float) -> None:
    opposition = Opposition()
    for step in range(200):
        noise = np.random.default_rng(step).standard_normal((2, 8))
        opposition.add(step, 0.1 * reward * step + noise[0], 0.1 * watcher * step + noise[1])
        assert opposition.found() is None
    assert len(opposition.steps) == LONGEST


def test_the_hint_in_words() -> None:
    monitor = watching()
    lines: list[str] = []
    for step in range(10, 250, 10):
        # asked every 10 steps about rows 1, 2 and 3; the means are 0.1 step and 5 - 0.01 step
        noise = 0.01 * (step % 20 - 10)
        rewards = batch(
            np.array([0.0, 0.1, 0.2, 0.3]) + 0.1 * step + noise,
            [4.0 - 0.01 * step + noise, 5.0 - 0.01 * step, 6.0 - 0.01 * step, None],
        )
        lines += monitor.observe(step, rewards.scores, [3, 4, 3, 4], rewards=rewards)
    # 16 steps from 10 to 160 are enough; nothing is said again within 20 steps, so at 180, ...
    assert lines[0].startswith(
        "step 160: look at samples 1, 2 and 3 of this step in samples.jsonl: the reward rises (+0.1 a"
        " step) and the watcher truth falls (-0.01) since step 10, over 16 steps in which it was"
        " asked: if higher is better there, the policy probably exploits the reward"
    )
    assert [line.split(":")[0] for line in lines] == [f"step {n}" for n in range(160, 250, 20)]


def test_a_resumed_monitor_hears_the_same() -> None:
    how = {"seed": 3, "opposed": 0.5, "turn": 20}
    whole = heard(watching(), range(1, 81), **how)
    assert whole
    before = watching()
    first = heard(before, range(1, 31), **how)
    after = watching()
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first + heard(after, range(31, 81), **how) == whole


def test_a_state_of_before_pairs_were_counted() -> None:
    how = {"seed": 3, "opposed": 0.5, "turn": 20}
    before = watching()
    heard(before, range(1, 31), **how)
    state = json.loads(json.dumps(before.state_dict()))
    state["watched"]["truth"] = [step[:5] for step in state["watched"]["truth"]]
    after = watching()
    after.load_state_dict(state)
    assert [len(step) for step in after.state_dict()["watched"]["truth"]] == [9] * 30
    assert heard(after, range(31, 81), **how)


def test_a_state_of_before_there_were_watchers() -> None:
    monitor = Monitor(RewardMonitorConfig())
    monitor.load_state_dict({"steps": [], "said": {}})
    assert monitor.state_dict()["watched"] == {}
