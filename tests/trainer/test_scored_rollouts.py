"""Rounds of one step become one batch, and groups without contrast are found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rmrl.errors import ConfigError
from rmrl.trainer.scored_rollouts import concatenate, contrast
from rmrl.types import (
    Prompt,
    Response,
    RewardBatch,
    Rollouts,
    ScoreResult,
    Scores,
    Status,
    Step,
    TeacherTokens,
)

NAN = float("nan")


def sampled_round(
    rewards: list[float],
    *,
    group_size: int = 2,
    other: list[float] | None = None,
    metrics: dict[str, float] | None = None,
) -> tuple[Rollouts, RewardBatch]:
    """Responses whose only reward (and component "main") is given; NaN: no verdict."""
    prompt = Prompt(id="p", messages=[], token_ids=(1,))
    answers = tuple(
        Response(
            prompt=prompt,
            text=f"{i}",
            token_ids=(i,),
            logprobs=None,
            finish_reason="stop",
            policy_version=0,
        )
        for i in range(len(rewards))
    )
    columns = {"main": rewards, **({"other": other} if other else {})}
    results = tuple(tuple(_result(value) for value in column) for column in columns.values())
    batch = RewardBatch(
        scores=Scores(names=tuple(columns), results=results),
        weights_C=np.ones(len(columns)),
        rewards_B=np.asarray(rewards),
        keep_B=~np.isnan(rewards),
        metrics=metrics or {},
    )
    return Rollouts(responses=answers, group_size=group_size), batch


def _result(value: float) -> ScoreResult:
    status: Status = "timeout" if np.isnan(value) else "ok"
    return ScoreResult(value=None if np.isnan(value) else value, status=status)


def test_groups_with_equal_rewards_are_left_out() -> None:
    made = sampled_round([0, 1, 1, 1, 0, 0, 0.5, 0])
    assert contrast(*made, None).tolist() == [True, True, False, False, False, False, True, True]


def test_rows_without_a_verdict_are_in_no_statistic() -> None:
    """[1, nan] has one verdict left and no contrast; [1, nan, 0, ...] still has one."""
    made = sampled_round([1, NAN, 1, 1, NAN, 0], group_size=3)
    assert contrast(*made, None).tolist() == [False, False, False, True, False, True]


def test_contrast_may_be_asked_of_one_component() -> None:
    made = sampled_round([0, 1, 0, 1], other=[1, 1, 0, 1])
    assert contrast(*made, "other").tolist() == [False, False, True, True]
    assert contrast(*made, "reward").tolist() == [True] * 4
    with pytest.raises(
        ConfigError,
        match=r"filter_groups.metric=mian: no reward of that name; known: reward, main, other",
    ):
        contrast(*made, "mian")


def test_contrast_of_scores_is_that_before_transforms() -> None:
    """Overlong shaping made rewards of equal scores differ: [1, 0.8] and [0, 1] are scores [1, 1]
    and [0, 1]."""
    rollouts, rewards = sampled_round([1, 1, 0, 1])
    shaped = dataclasses.replace(rewards, rewards_B=np.asarray([1, 0.8, 0, 1]))
    assert contrast(rollouts, shaped, "reward").tolist() == [True] * 4
    assert contrast(rollouts, shaped, "score").tolist() == [False, False, True, True]
    assert contrast(rollouts, shaped, "acc").tolist() == [False, False, True, True]


def test_contrast_of_scores_weighs_them() -> None:
    """2 * 1 + 0 and 0 + 1 * 2 are equal; 2 * 1 + 1 and 0 + 1 are not."""
    rollouts, rewards = sampled_round([1, 0, 1, 0], other=[0, 2, 1, 1])
    weighted = dataclasses.replace(rewards, weights_C=np.asarray([2.0, 1.0]))
    assert contrast(rollouts, weighted, "score").tolist() == [False, False, True, True]


def test_contrast_of_acc_is_what_the_rule_returned_beside_its_score() -> None:
    """Scores 0.5 and 1 of two right answers: acc is 1 for both."""
    rollouts, rewards = sampled_round([0.5, 1, -1, 1])
    results = [
        dataclasses.replace(r, extra={"acc": acc})
        for r, acc in zip(rewards.scores.results[0], [1, True, False, 1.0], strict=True)
    ]
    with_acc = dataclasses.replace(
        rewards, scores=dataclasses.replace(rewards.scores, results=(tuple(results),))
    )
    assert contrast(rollouts, with_acc, "acc").tolist() == [False, False, True, True]
    assert contrast(rollouts, with_acc, "score").tolist() == [True] * 4


def test_rounds_are_joined_in_order_with_groups_that_stay_apart() -> None:
    first, second = (
        sampled_round([0, 1], metrics={"a": 1.0, "b": 4.0}),
        sampled_round([1, 1, NAN, 0], metrics={"a": 2.5}),
    )
    rollouts, rewards = concatenate([first, second])
    assert rollouts.group_ids_B.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(rewards.rewards_B, [0, 1, 1, 1, NAN, 0])
    assert rewards.keep_B.tolist() == [True, True, True, True, False, True]
    np.testing.assert_array_equal(rewards.scores.values_BC[:, 0], [0, 1, 1, 1, NAN, 0])
    assert rewards.metrics == {"a": pytest.approx((2 * 1.0 + 4 * 2.5) / 6), "b": 4.0}


def test_step_scores_are_joined_also_where_a_round_has_none() -> None:
    (rollouts, rewards), plain = sampled_round([0, 1]), sampled_round([1, 0])
    steps = ((Step(3, 0.5),), ())
    with_steps = RewardBatch(
        scores=rewards.scores,
        weights_C=rewards.weights_C,
        rewards_B=rewards.rewards_B,
        keep_B=rewards.keep_B,
        steps=steps,
    )
    assert concatenate([(rollouts, with_steps), plain])[1].steps == ((Step(3, 0.5),), (), (), ())


def test_one_round_is_the_batch() -> None:
    made = sampled_round([0, 1])
    assert concatenate([made]) is made


@pytest.mark.parametrize("metric", ["score", "acc"])
def test_a_teachers_score_makes_no_contrast(metric: str) -> None:
    """The rule says [1, 1] and [0, 1]; the teacher "other" -1.5, -0.5 and -2, -1, and its verdict
    goes to the tokens."""
    rollouts, rewards = sampled_round([1, 1, 0, 1], other=[-1.5, -0.5, -2.0, -1.0])
    assert contrast(rollouts, rewards, metric).tolist() == [True] * 4
    said = TeacherTokens(name="other", weight=1.0, clip=10.0, logprobs=np.zeros(1, np.float32))
    taught = dataclasses.replace(rewards, teachers=((said,),) * 4)
    assert contrast(rollouts, taught, metric).tolist() == [False, False, True, True]
    assert contrast(rollouts, taught, "other").tolist() == [True] * 4
