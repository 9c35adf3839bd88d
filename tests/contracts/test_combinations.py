"""What holds for every combination of settings and data, from scored responses to the gradient of
the loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pytest

from rmrl.algorithms import estimator_named, loss_named
from rmrl.algorithms.aggregate import PROMPT_MEAN
from rmrl.algorithms.pf_ppo import probabilities
from rmrl.trainer.batches import ScoredBatch
from rmrl.trainer.step_rewards import rewards_with_steps
from rmrl.types import Step
from tests.contracts.combinations import (
    FACTORS,
    Case,
    Data,
    Gradient,
    algorithm,
    by_source,
    cases,
    estimate,
    gradient,
    informative,
    make_data,
    redrawn,
    spoilt_outside,
)

WHITENED = ("gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
every_case = pytest.mark.parametrize("case", cases(), ids=str)


def roles(case: Case) -> list[bool]:
    """Whose losses there are: the policy's, and a critic's where values are read."""
    return [False, True] if estimator_named(case.estimator).values else [False]


def same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Equal to 1e-6 of the largest, at least of 1."""
    scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6 * scale)


def same_sums(ours: Mapping[str, float], theirs: Mapping[str, float]) -> None:
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=2e-5, abs=1e-5), name


def same_gradients(
    ours: tuple[ScoredBatch, Gradient], theirs: tuple[ScoredBatch, Gradient]
) -> None:
    # counts are equal; shares of prompts add up to them in float64
    assert ours[1].weight == pytest.approx(theirs[1].weight, rel=1e-12)
    assert ours[1].tokens == theirs[1].tokens
    assert ours[1].loss == pytest.approx(theirs[1].loss, rel=2e-5, abs=1e-5)
    same_sums(ours[1].sums, theirs[1].sums)
    for name, slopes in theirs[1].by_token.items():
        same(by_source(ours[0], ours[1].by_token[name]), by_source(theirs[0], slopes))


def trained(case: Case, data: Data) -> ScoredBatch:
    return redrawn(case, estimate(case, informative(case, data))[0])


@every_case
def test_everything_is_finite(case: Case) -> None:
    data = make_data(case)
    batch, metrics = estimate(case, informative(case, data))
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    if case.estimator in WHITENED:
        assert metrics["advantage/mean"] == pytest.approx(0.0, abs=1e-5)
    for stream in (batch.train.advantages, batch.train.returns, batch.train.rollout_weights):
        assert stream is None or np.isfinite(stream.values).all()
    drawn = redrawn(case, batch)
    for critic in roles(case):
        slopes = gradient(case, drawn, data, critic=critic)
        assert math.isfinite(slopes.loss)
        assert all(math.isfinite(value) for value in slopes.sums.values()), slopes.sums
        assert all(np.isfinite(ragged.values).all() for ragged in slopes.by_token.values())


@every_case
def test_masks_are_respected(case: Case) -> None:
    """No gradient where a token does not count, whatever stands there; no advantage outside the
    response mask."""
    data = make_data(case)
    batch = trained(case, data)
    response, kept = batch.train.response_mask.values, batch.train.loss_mask.values
    assert (kept <= response).all()
    assert batch.train.advantages is not None
    assert (batch.train.advantages.values[response == 0] == 0).all()
    assert batch.train.returns is None or (batch.train.returns.values[response == 0] == 0).all()
    rows = [row.any() for row in batch.train.loss_mask.rows()]
    weight = sum(rows)
    if case.aggregation.startswith("token"):
        weight = kept.sum()
    elif case.aggregation == PROMPT_MEAN:
        weight = len(np.unique(batch.group_ids_B[rows]))
    for critic in roles(case):
        slopes = gradient(case, batch, data, critic=critic)
        assert slopes.tokens == kept.sum()
        assert slopes.weight == pytest.approx(weight, rel=1e-12)
        for ragged in slopes.by_token.values():
            assert (ragged.values[kept == 0] == 0).all()
        for garbage in (math.nan, math.inf, -1e30):
            spoilt = gradient(case, batch, data, critic=critic, garbage=garbage)
            assert spoilt.loss == slopes.loss
            for name, ragged in slopes.by_token.items():
                assert np.array_equal(spoilt.by_token[name].values, ragged.values)


@pytest.mark.parametrize("case", [case for case in cases() if case.holes], ids=str)
def test_tokens_outside_the_response_mask_have_no_part_in_any_advantage(case: Case) -> None:
    """Neither what the models say of them nor a score of a step that ends there."""
    data = make_data(case)
    given = informative(case, data)
    ours, metrics = estimate(case, given)
    theirs, spoilt_metrics = estimate(case, spoilt_outside(given))
    assert ours.train.advantages is not None
    assert theirs.train.advantages is not None
    assert np.array_equal(ours.train.advantages.values, theirs.train.advantages.values)
    assert np.array_equal(ours.train.loss_mask.values, theirs.train.loss_mask.values)
    assert spoilt_metrics == metrics


@every_case
def test_rejection_changes_no_advantage(case: Case) -> None:
    data = make_data(case)
    ours, metrics = estimate(case, informative(case, data))
    plain, plain_metrics = estimate(
        dataclasses.replace(case, rejection=None), informative(case, data)
    )
    assert ours.train.advantages is not None
    assert plain.train.advantages is not None
    assert np.array_equal(ours.train.advantages.values, plain.train.advantages.values)
    assert np.array_equal(ours.train.response_mask.values, plain.train.response_mask.values)
    for name, value in plain_metrics.items():
        if not name.startswith("rollout_correction/"):
            assert metrics[name] == value


@every_case
def test_the_order_of_rows_changes_nothing(case: Case) -> None:
    data = make_data(case)
    given = informative(case, data)
    order = np.random.default_rng(case.number + 1).permutation(len(given.train))
    batch, metrics = estimate(case, given)
    shuffled, shuffled_metrics = estimate(case, given.select(order))
    same_sums(shuffled_metrics, metrics)
    assert batch.train.advantages is not None
    assert shuffled.train.advantages is not None
    same(by_source(shuffled, shuffled.train.advantages), by_source(batch, batch.train.advantages))
    same(by_source(shuffled, shuffled.train.loss_mask), by_source(batch, batch.train.loss_mask))
    drawn = redrawn(case, batch)
    place = {int(row): number for number, row in enumerate(shuffled.rows)}
    picked = (
        np.random.default_rng(case.number + 2)
        .permutation([place[int(row)] for row in drawn.rows])
        .astype(np.int64)
    )
    for critic in roles(case):
        theirs = gradient(case, drawn, data, critic=critic)
        again = shuffled.select(picked)
        same_gradients((again, gradient(case, again, data, critic=critic)), (drawn, theirs))


@every_case
def test_the_odds_of_pf_ppo_do_not_depend_on_the_order_of_rows(case: Case) -> None:
    batch = informative(case, make_data(case))
    totals_B = rewards_with_steps(batch.rewards_B, batch.steps)
    order = np.random.default_rng(case.number + 1).permutation(len(batch.train))
    odds_B = probabilities(totals_B, algorithm(case).pf_ppo, group_ids_B=batch.group_ids_B)
    shuffled_B = probabilities(
        totals_B[order], algorithm(case).pf_ppo, group_ids_B=batch.group_ids_B[order]
    )
    np.testing.assert_allclose(shuffled_B, odds_B[order], rtol=0, atol=1e-12)
    if len(odds_B):
        assert odds_B.sum() == pytest.approx(1.0)
    if case.rewards in ("equal", "rounding"):
        np.testing.assert_allclose(odds_B, 1 / max(len(odds_B), 1), rtol=1e-6)


@pytest.mark.parametrize(
    "case", [case for case in cases() if not loss_named(case.loss).depends_on_cut], ids=str
)
def test_the_cut_into_micro_batches_changes_nothing(case: Case) -> None:
    data = make_data(case)
    batch = trained(case, data)
    rows = np.random.default_rng(case.number + 3).permutation(len(batch.train))
    for critic in roles(case):
        whole = gradient(case, batch, data, critic=critic)
        for pieces in (2, 5):
            parts = np.array_split(rows, pieces)
            same_gradients(
                (batch, gradient(case, batch, data, critic=critic, parts=parts)), (batch, whole)
            )


@every_case
def test_rows_without_a_reward_have_no_part_in_anything(case: Case) -> None:
    """Other responses in their place, longer or shorter, leave every other row's gradient as it is;
    they have none."""
    data, other = make_data(case), make_data(case, other_missing=True)
    ours, theirs = trained(case, data), trained(case, other)
    without = ~data.sampled.rewards.keep_B
    assert not without[ours.rows].any()
    assert np.array_equal(ours.rows, theirs.rows)
    for critic in roles(case):
        slopes = gradient(case, ours, data, critic=critic)
        same_gradients((theirs, gradient(case, theirs, other, critic=critic)), (ours, slopes))


@pytest.mark.parametrize("case", [case for case in cases() if case.filtered], ids=str)
def test_a_group_is_chosen_where_its_rewards_differ_and_nowhere_else(case: Case) -> None:
    data = make_data(case)
    responses, rewards = data.sampled.rollouts.responses, data.sampled.rewards
    for start in range(0, len(responses), case.group_size):
        rows = range(start, start + case.group_size)
        there = [row for row in rows if rewards.keep_B[row] and len(responses[row].token_ids)]
        totals = [
            rewards.rewards_B[row] + sum(step.value for step in _steps_of(data, row))
            for row in there
        ]
        differ = bool(totals) and max(totals) - min(totals) > 1e-4
        assert [row for row in rows if data.sampled.chosen_B[row]] == (there if differ else [])
    batch = informative(case, data)
    if (
        case.estimator in ("grpo", "rloo", "opo", "gpg")
        and case.kl_in_reward is None
        and not case.holes
    ):
        _, metrics = estimate(case, batch)
        assert metrics["group/constant_fraction"] == 0.0


def _steps_of(data: Data, row: int) -> tuple[Step, ...]:
    steps = data.sampled.rewards.steps
    return steps[row] if steps else ()


def test_the_cases_cover_every_pair_and_are_not_empty() -> None:
    """A property that holds of nothing is worth nothing: most cases train, and most with rejection
    keep some and reject some."""
    assert all(
        {getattr(case, name) for case in cases()} == set(values) for name, values in FACTORS.items()
    )
    slopes = [_largest_slope(case) for case in cases()]
    assert sum(slope > 0 for slope in slopes) > 0.6 * len(slopes)
    shares = [_kept_share(case) for case in cases() if case.rejection]
    assert sum(0 < share < 1 for share in shares) > 0.2 * len(shares)
    assert any(share == 0 for share in shares)


def _largest_slope(case: Case) -> float:
    data = make_data(case)
    slopes = gradient(case, trained(case, data), data).by_token["new"].values
    return float(np.abs(slopes).max(initial=0.0))


def _kept_share(case: Case) -> float:
    mask = estimate(case, informative(case, make_data(case)))[0].train.loss_mask
    return float(mask.values.mean()) if len(mask.values) else 1.0
