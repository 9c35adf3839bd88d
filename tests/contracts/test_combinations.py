"""What holds for every combination of settings and data, from scored responses to the gradient of
the loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rmrl.algorithms import estimator_named, loss_named
from rmrl.algorithms.aggregate import PROMPT_MEAN
from rmrl.algorithms.pf_ppo import probabilities
from rmrl.trainer.batches import ScoredBatch
from rmrl.trainer.step_rewards import rewards_with_steps
from tests.contracts.combinations import (
    FACTORS,
    Case,
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


class Way:
    """The way of one case, from its data to its gradient: each station computed once."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.data = make_data(case)
        self.rows = informative(case, self.data)
        self.batch, self.metrics = estimate(case, self.rows)
        self.trained = redrawn(case, self.batch)
        # by role: False for the policy, True for a critic, which there is where values are read
        self.gradients = {False: gradient(case, self.trained, self.data)}
        if estimator_named(case.estimator).values:
            self.gradients[True] = gradient(case, self.trained, self.data, critic=True)

    def gradient_of(self, batch: ScoredBatch, critic: bool, **options: Any) -> Gradient:
        """Gradient with another batch, or in another way."""
        return gradient(self.case, batch, self.data, critic=critic, **options)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_what_holds_for_every_case(case: Case) -> None:
    way = Way(case)
    check_that_everything_is_finite(way)
    check_that_masks_are_respected(way)
    if case.holes:
        check_that_tokens_outside_the_response_mask_have_no_part(way)
    check_that_rejection_changes_no_advantage(way)
    check_that_the_order_of_rows_changes_nothing(way)
    check_that_the_odds_of_pf_ppo_do_not_depend_on_the_order_of_rows(way)
    if not loss_named(case.loss).depends_on_cut:
        check_that_the_cut_into_micro_batches_changes_nothing(way)
    check_that_rows_without_a_reward_have_no_part_in_anything(way)
    if case.filtered:
        check_that_groups_are_chosen_where_their_rewards_differ(way)


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


def check_that_everything_is_finite(way: Way) -> None:
    assert all(math.isfinite(value) for value in way.metrics.values()), way.metrics
    if way.case.estimator in WHITENED:
        assert way.metrics["advantage/mean"] == pytest.approx(0.0, abs=1e-5)
    train = way.batch.train
    for stream in (train.advantages, train.returns, train.rollout_weights):
        assert stream is None or np.isfinite(stream.values).all()
    for slopes in way.gradients.values():
        assert math.isfinite(slopes.loss)
        assert all(math.isfinite(value) for value in slopes.sums.values()), slopes.sums
        assert all(np.isfinite(ragged.values).all() for ragged in slopes.by_token.values())


def check_that_masks_are_respected(way: Way) -> None:
    """No gradient where a token does not count, whatever stands there; no advantage outside the
    response mask."""
    train = way.trained.train
    response, kept = train.response_mask.values, train.loss_mask.values
    assert (kept <= response).all()
    assert train.advantages is not None
    assert (train.advantages.values[response == 0] == 0).all()
    assert train.returns is None or (train.returns.values[response == 0] == 0).all()
    rows = [row.any() for row in train.loss_mask.rows()]
    weight = sum(rows)
    if way.case.aggregation.startswith("token"):
        weight = kept.sum()
    elif way.case.aggregation == PROMPT_MEAN:
        weight = len(np.unique(way.trained.group_ids_B[rows]))
    for critic, slopes in way.gradients.items():
        assert slopes.tokens == kept.sum()
        assert slopes.weight == pytest.approx(weight, rel=1e-12)
        for ragged in slopes.by_token.values():
            assert (ragged.values[kept == 0] == 0).all()
        for garbage in (math.nan, math.inf, -1e30):
            spoilt = way.gradient_of(way.trained, critic, garbage=garbage)
            assert spoilt.loss == slopes.loss
            for name, ragged in slopes.by_token.items():
                assert np.array_equal(spoilt.by_token[name].values, ragged.values)


def check_that_tokens_outside_the_response_mask_have_no_part(way: Way) -> None:
    """Neither what the models say of them nor a score of a step that ends there."""
    spoilt, spoilt_metrics = estimate(way.case, spoilt_outside(way.rows))
    same_advantages(spoilt, way.batch)
    assert np.array_equal(spoilt.train.loss_mask.values, way.batch.train.loss_mask.values)
    assert spoilt_metrics == way.metrics


def check_that_rejection_changes_no_advantage(way: Way) -> None:
    plain, plain_metrics = estimate(dataclasses.replace(way.case, rejection=None), way.rows)
    same_advantages(plain, way.batch)
    assert np.array_equal(plain.train.response_mask.values, way.batch.train.response_mask.values)
    for name, value in plain_metrics.items():
        if not name.startswith("rollout_correction/"):
            assert way.metrics[name] == value


def same_advantages(one: ScoredBatch, other: ScoredBatch) -> None:
    assert one.train.advantages is not None
    assert other.train.advantages is not None
    assert np.array_equal(one.train.advantages.values, other.train.advantages.values)


def check_that_the_order_of_rows_changes_nothing(way: Way) -> None:
    order = np.random.default_rng(way.case.number + 1).permutation(len(way.rows.train))
    shuffled, shuffled_metrics = estimate(way.case, way.rows.select(order))
    same_sums(shuffled_metrics, way.metrics)
    for name in ("advantages", "loss_mask"):
        before, after = getattr(way.batch.train, name), getattr(shuffled.train, name)
        same(by_source(shuffled, after), by_source(way.batch, before))
    place = {int(row): number for number, row in enumerate(shuffled.rows)}
    picked = np.random.default_rng(way.case.number + 2).permutation(
        [place[int(row)] for row in way.trained.rows]
    )
    again = shuffled.select(picked.astype(np.int64))
    for critic, slopes in way.gradients.items():
        same_gradients((again, way.gradient_of(again, critic)), (way.trained, slopes))


def check_that_the_odds_of_pf_ppo_do_not_depend_on_the_order_of_rows(way: Way) -> None:
    settings = algorithm(way.case).pf_ppo
    groups_B = way.rows.group_ids_B
    totals_B = rewards_with_steps(way.rows.rewards_B, way.rows.steps)
    order = np.random.default_rng(way.case.number + 1).permutation(len(way.rows.train))
    odds_B = probabilities(totals_B, settings, group_ids_B=groups_B)
    shuffled_B = probabilities(totals_B[order], settings, group_ids_B=groups_B[order])
    np.testing.assert_allclose(shuffled_B, odds_B[order], rtol=0, atol=1e-12)
    if len(odds_B):
        assert odds_B.sum() == pytest.approx(1.0)
    if way.case.rewards in ("equal", "rounding"):
        np.testing.assert_allclose(odds_B, 1 / max(len(odds_B), 1), rtol=1e-6)


def check_that_the_cut_into_micro_batches_changes_nothing(way: Way) -> None:
    rows = np.random.default_rng(way.case.number + 3).permutation(len(way.trained.train))
    for critic, whole in way.gradients.items():
        for pieces in (2, 5):
            parts = np.array_split(rows, pieces)
            cut = way.gradient_of(way.trained, critic, parts=parts)
            same_gradients((way.trained, cut), (way.trained, whole))


def check_that_rows_without_a_reward_have_no_part_in_anything(way: Way) -> None:
    """Other responses in their place, longer or shorter, leave every other row's gradient as it is;
    they have none."""
    other = make_data(way.case, other_missing=True)
    batch = redrawn(way.case, estimate(way.case, informative(way.case, other))[0])
    assert way.data.sampled.rewards.keep_B[way.trained.rows].all()
    assert np.array_equal(way.trained.rows, batch.rows)
    for critic, slopes in way.gradients.items():
        others = gradient(way.case, batch, other, critic=critic)
        same_gradients((batch, others), (way.trained, slopes))


def check_that_groups_are_chosen_where_their_rewards_differ(way: Way) -> None:
    case = way.case
    sampled = way.data.sampled
    rewards = sampled.rewards
    responses = sampled.rollouts.responses
    for start in range(0, len(responses), case.group_size):
        rows = range(start, start + case.group_size)
        scored = [row for row in rows if rewards.keep_B[row] and len(responses[row].token_ids)]
        totals = []
        for row in scored:
            steps = rewards.steps[row] if rewards.steps else ()
            totals.append(rewards.rewards_B[row] + sum(step.value for step in steps))
        differ = bool(totals) and max(totals) - min(totals) > 1e-4
        assert [row for row in rows if sampled.chosen_B[row]] == (scored if differ else [])
    plain = case.kl_in_reward is None and not case.holes
    if plain and case.estimator in ("grpo", "rloo", "opo", "gpg"):
        assert way.metrics["group/constant_fraction"] == 0.0


def test_the_cases_cover_every_pair_and_are_not_empty() -> None:
    """A property that holds of nothing is worth nothing: most cases train, and most with rejection
    keep some and reject some."""
    for name, values in FACTORS.items():
        assert {getattr(case, name) for case in cases()} == set(values)
    train = 0
    shares = []
    for case in cases():
        way = Way(case)
        train += bool(np.abs(way.gradients[False].by_token["new"].values).max(initial=0.0) > 0)
        if case.rejection:
            mask = way.batch.train.loss_mask.values
            shares.append(float(mask.mean()) if len(mask) else 1.0)
    assert train > 0.6 * len(cases())
    assert sum(0 < share < 1 for share in shares) > 0.2 * len(shares)
    assert any(share == 0 for share in shares)
