"""From scored rollouts to a training batch, with numbers computed by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from rmrl.algorithms.kl import KLController
from rmrl.config.schema import (
    AlgorithmConfig,
    KLControlConfig,
    PFPPOConfig,
    RolloutCorrectionConfig,
)
from rmrl.trainer.batches import (
    ScoredBatch,
    add_advantages,
    advantage_per_row,
    correct_rollout,
    keep_informative,
    logprob_difference,
    mini_batches,
    redraw,
)
from rmrl.trainer.scored_rollouts import ScoredRollouts
from rmrl.types import Prompt, Ragged, Response, RewardBatch, Rollouts, ScoreResult, Scores

NAN = float("nan")


def rollouts(lengths: list[int], *, group_size: int, logprobs: bool = True) -> Rollouts:
    """Response b to prompt b // group_size: `lengths[b]` tokens, all of them 50 + b."""
    responses = []
    for b, length in enumerate(lengths):
        group = b // group_size
        prompt = Prompt(
            id=f"p:{group}",
            messages=[{"role": "user", "content": "x"}],
            token_ids=(10 + group, 20 + group),
        )
        row = Response(
            prompt=prompt,
            text="t",
            token_ids=(50 + b,) * length,
            logprobs=(-0.5,) * length if logprobs else None,
            finish_reason="stop",
            policy_version=0,
        )
        responses.append(row)
    return Rollouts(responses=tuple(responses), group_size=group_size)


def rewards(values: list[float]) -> RewardBatch:
    """One component; NaN is a missing verdict."""
    column = tuple(
        ScoreResult(value=None, status="timeout") if math.isnan(v) else ScoreResult(value=v)
        for v in values
    )
    array = np.asarray(values)
    return RewardBatch(
        scores=Scores(names=("r",), results=(column,)),
        weights_C=np.ones(1),
        rewards_B=array,
        keep_B=~np.isnan(array),
    )


def sampled(made: Rollouts, got: RewardBatch, **more: Any) -> ScoredRollouts:
    return ScoredRollouts(
        **(
            {
                "step": 0,
                "rollouts": made,
                "rewards": got,
                "chosen_B": np.ones(len(made.responses), dtype=bool),
            }
            | more
        )
    )


def scored(
    values: list[float], *, group_size: int, lengths: list[int] | None = None
) -> ScoredBatch:
    return keep_informative(
        sampled(rollouts(lengths or [2] * len(values), group_size=group_size), rewards(values))
    )


def advantages(batch: ScoredBatch, **settings: object) -> ScoredBatch:
    settings = {"adv_estimator": "grpo", **settings}
    return add_advantages(
        batch, AlgorithmConfig(**settings), KLController(KLControlConfig()), decode=repr
    )[0]  # type: ignore[arg-type]


def test_tokens_mask_and_logprobs_of_the_rows_that_train() -> None:
    batch = scored([1.0, NAN, 2.0], group_size=3, lengths=[2, 1, 3])
    assert batch.rows.tolist() == [0, 2]
    assert [row.tolist() for row in batch.train.tokens.rows()] == [
        [10, 20, 50, 50],
        [10, 20, 52, 52, 52],
    ]
    assert [row.tolist() for row in batch.train.response_mask.rows()] == [[1, 1], [1, 1, 1]]
    assert batch.train.rollout_logprobs is not None
    assert batch.train.rollout_logprobs.values.tolist() == [-0.5] * 5
    assert batch.rewards_B.tolist() == [1.0, 2.0]


def test_an_empty_response_does_not_train() -> None:
    assert scored([1.0, 2.0], group_size=2, lengths=[0, 2]).rows.tolist() == [1]


def test_a_sampler_without_logprobs_gives_none() -> None:
    kept = keep_informative(
        sampled(rollouts([1, 1], group_size=2, logprobs=False), rewards([1.0, 2.0]))
    )
    assert kept.train.rollout_logprobs is None


def test_no_row_at_all_is_an_empty_batch() -> None:
    batch = scored([NAN, NAN], group_size=2)
    assert len(batch.train) == 0
    assert np.isnan(advantage_per_row(batch, 2)).all()


def test_a_dropped_row_leaves_its_groups_baseline() -> None:
    four = advantages(scored([1.0, 3.0, 2.0, NAN], group_size=4))
    three = advantages(scored([1.0, 3.0, 2.0], group_size=3))
    # mean 2, sample standard deviation 1: (1 - 2) / 1, (3 - 2) / 1, 0
    firsts = [row[0] for row in four.train.advantages.rows()]  # type: ignore[union-attr]
    assert firsts == pytest.approx([-1.0, 1.0, 0.0], abs=1e-5)
    assert four.train.advantages.values.tolist() == three.train.advantages.values.tolist()  # type: ignore[union-attr]


def test_advantage_per_row_is_nan_where_a_row_does_not_train() -> None:
    batch = advantages(scored([1.0, NAN, 3.0], group_size=3), norm_adv_by_std_in_grpo=False)
    spread = advantage_per_row(batch, 3)
    assert spread[[0, 2]].tolist() == pytest.approx([-1.0, 1.0])  # 1 - 2, 3 - 2
    assert np.isnan(spread[1])


def test_the_kl_penalty_is_a_token_reward_and_moves_the_controller() -> None:
    batch = scored([1.0, 1.0], group_size=2, lengths=[1, 1])
    train = batch.train
    with_logprobs = type(train)(
        tokens=train.tokens,
        response_mask=train.response_mask,
        old_logprobs=Ragged.of([[-1.0], [-1.0]], np.float32),
        ref_logprobs=Ragged.of([[-1.5], [-1.0]], np.float32),
    )
    settings = AlgorithmConfig(
        adv_estimator="grpo", use_kl_in_reward=True, norm_adv_by_std_in_grpo=False
    )
    controller = KLController(
        KLControlConfig(type="adaptive", kl_coef=0.1, horizon=10, target_kl=0.1)
    )
    done, metrics = add_advantages(
        dataclasses.replace(batch, train=with_logprobs), settings, controller, decode=repr
    )
    # k1 = old - ref: 0.5 and 0, mean 0.25; penalties 0.1 x 0.5 and 0
    assert metrics["policy/ref_kl"] == pytest.approx(0.25)
    assert metrics["reward/kl_coef"] == pytest.approx(0.1)
    assert metrics["reward/kl_penalty"] == pytest.approx(0.025)
    # rewards 0.95 and 1, mean 0.975
    assert done.train.advantages.values.tolist() == pytest.approx([-0.025, 0.025], abs=1e-6)  # type: ignore[union-attr]
    # error clip(0.25 / 0.1 - 1, +-0.2) = 0.2; 0.1 x (1 + 0.2 x 2 / 10)
    assert controller.coefficient == pytest.approx(0.104)


def test_the_controller_learns_nothing_from_responses_that_do_not_count() -> None:
    batch = with_old(scored([1.0, 2.0], group_size=2), [0.0, 0.0])
    uncounted = dataclasses.replace(
        batch.train,
        response_mask=Ragged.of([[0, 0], [0, 0]], np.float32),
        ref_logprobs=batch.train.old_logprobs,
    )
    controller = KLController(
        KLControlConfig(type="adaptive", kl_coef=0.1, horizon=10, target_kl=0.1)
    )
    settings = AlgorithmConfig(adv_estimator="grpo", use_kl_in_reward=True)
    add_advantages(dataclasses.replace(batch, train=uncounted), settings, controller, decode=repr)
    assert controller.coefficient == 0.1


def test_mini_batches_keep_groups_whole_and_lose_nothing() -> None:
    batch = scored([1.0, 2.0, NAN, 4.0, 5.0, 6.0], group_size=2)
    cut = list(mini_batches(batch.train, batch.group_ids_B, prompts=2, rng=None))
    # groups 0, 1 (one row dropped), 2: two groups, then one
    assert [[int(row[2]) for row in part.tokens.rows()] for part in cut] == [[50, 51, 53], [54, 55]]


def test_shuffled_mini_batches_are_whole_groups_too() -> None:
    batch = scored([float(b) for b in range(16)], group_size=2)
    orders = [
        [
            [int(row[2]) - 50 for row in part.tokens.rows()]
            for part in mini_batches(batch.train, batch.group_ids_B, prompts=2, rng=rng)
        ]
        for rng in (np.random.default_rng(1), np.random.default_rng(1), np.random.default_rng(2))
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(b for part in orders[0] for b in part) == list(range(16))
    for part in orders[0]:
        assert {b ^ 1 for b in part} == set(part)  # 2k and 2k + 1 stay together


def test_a_group_without_rows_makes_no_empty_mini_batch() -> None:
    batch = scored([1.0, 2.0, NAN, NAN], group_size=2)
    assert [
        len(part) for part in mini_batches(batch.train, batch.group_ids_B, prompts=1, rng=None)
    ] == [2]


def test_logprob_difference_by_hand() -> None:
    batch = scored([1.0, 2.0], group_size=2)
    old = Ragged.of([[-0.5, -0.75], [-0.5, -1.5]], np.float32)  # rollout: -0.5 everywhere
    metrics = logprob_difference(dataclasses.replace(batch.train, old_logprobs=old))
    assert metrics == {
        "policy/rollout_logprob_diff": pytest.approx(0.3125),
        "policy/rollout_logprob_diff_max": pytest.approx(1.0),
    }
    assert logprob_difference(batch.train) == {}
    nothing = Ragged.of([[], []], np.float32)
    empty = dataclasses.replace(batch.train, rollout_logprobs=nothing, old_logprobs=nothing)
    assert logprob_difference(empty) == {}


def test_what_dynamic_sampling_left_out_does_not_train() -> None:
    batch = keep_informative(
        sampled(
            rollouts([2, 2, 2, 2], group_size=2),
            rewards([0.0, 1.0, 1.0, 1.0]),
            chosen_B=np.arange(4) < 2,
        )
    )
    assert batch.rows.tolist() == [0, 1]
    assert batch.group_ids_B.tolist() == [0, 0]


def test_the_greedy_baseline_stays_beside_its_rows() -> None:
    batch = keep_informative(
        sampled(
            rollouts([2, 1, 2], group_size=1),
            rewards([1.0, NAN, 0.0]),
            baselines_B=np.asarray([0.5, 0.2, NAN]),
        )
    )
    np.testing.assert_array_equal(batch.baselines_B, [0.5, NAN])


def with_old(batch: ScoredBatch, apart: list[float]) -> ScoredBatch:
    """Each row's old logprobs are its rollout logprobs plus its number of `apart`."""
    assert batch.train.rollout_logprobs is not None
    old = Ragged.of(
        [
            row + shift
            for row, shift in zip(batch.train.rollout_logprobs.rows(), apart, strict=True)
        ],
        np.float32,
    )
    return dataclasses.replace(batch, train=dataclasses.replace(batch.train, old_logprobs=old))


def test_rollout_correction_weighs_and_rejects_tokens() -> None:
    """Ratios 2 and 0.5 against 1: truncated at 1.5; below 0.6 rejected."""
    batch = with_old(scored([1.0, 2.0, 3.0], group_size=3), [math.log(2), math.log(0.5), 0.0])
    asked = RolloutCorrectionConfig(
        rollout_is="token",
        rollout_is_threshold=1.5,
        rollout_rs="token",
        rollout_rs_threshold=3.0,
        rollout_rs_threshold_lower=0.6,
    )
    corrected, metrics = correct_rollout(batch, AlgorithmConfig(rollout_correction=asked))
    assert corrected.train.kept_mask is not None
    assert [row.tolist() for row in corrected.train.kept_mask.rows()] == [[1, 1], [0, 0], [1, 1]]
    assert [row.tolist() for row in corrected.train.response_mask.rows()] == [[1, 1]] * 3
    assert corrected.train.rollout_weights is not None
    kept = [row.tolist() for row in corrected.train.rollout_weights.rows()]
    assert (kept[0], kept[2]) == (pytest.approx([1.5, 1.5]), pytest.approx([1.0, 1.0]))
    assert metrics["rollout_correction/rejected"] == pytest.approx(1 / 3)


def test_without_correction_nothing_changes() -> None:
    batch = scored([1.0, 2.0], group_size=2)
    assert correct_rollout(batch, AlgorithmConfig()) == (batch, {})


def test_redrawn_rows_keep_what_belongs_to_them() -> None:
    """max_min draws only each group's best and worst: rows 0 and 2."""
    batch = scored([1.0, 2.0, 3.0], group_size=3, lengths=[1, 2, 3])
    settings = AlgorithmConfig(use_pf_ppo=True, pf_ppo=PFPPOConfig(reweight_method="max_min"))
    drawn, metrics = redraw(batch, settings, rng=np.random.default_rng(0))
    assert set(drawn.rows.tolist()) == {0, 2}
    assert drawn.rewards_B.tolist() == [1.0 + row for row in drawn.rows]
    assert drawn.train.response_mask.lengths.tolist() == [row + 1 for row in drawn.rows]
    assert metrics["pf_ppo/distinct"] == pytest.approx(2 / 3)
