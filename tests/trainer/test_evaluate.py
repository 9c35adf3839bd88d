"""Validation numbers by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from rmrl.config.schema import Config
from rmrl.rewards.transforms.probability_map import Curve, ProbabilityMap, Verdicts
from rmrl.trainer.evaluate import validation_metrics, validation_sampling
from rmrl.types import Prompt, Response, RewardBatch, Rollouts, ScoreResult, Scores


def batch(rows: list[tuple[str, float | None, int]]) -> tuple[Rollouts, RewardBatch]:
    """(data source, score or None, tokens) of each response; the reward is twice the score."""
    responses = tuple(
        Response(
            prompt=Prompt(
                id="p",
                messages=[{"role": "user", "content": "x"}],
                token_ids=(1,),
                data_source=source,
            ),
            text="",
            token_ids=(1,) * tokens,
            logprobs=None,
            finish_reason="stop",
            policy_version=0,
        )
        for source, _, tokens in rows
    )
    results = tuple(
        ScoreResult(value=v) if v is not None else ScoreResult(value=None, status="timeout")
        for _, v, _ in rows
    )
    values = np.asarray([np.nan if v is None else 2 * v for _, v, _ in rows])
    scores = Scores(names=("a",), results=(results,))
    return Rollouts(responses=responses, group_size=1), RewardBatch(
        scores=scores, weights_C=np.asarray([2.0]), rewards_B=values, keep_B=~np.isnan(values)
    )


CURVE = Curve(method="isotonic", points=((0.0, 0.0), (1.0, 1.0)))


def test_a_calibrated_component_has_its_corrected_share() -> None:
    calibration = ProbabilityMap(
        curve=CURVE,
        reward="a",
        kind="rule",
        digest={},
        threshold=0.5,
        folds=(CURVE,),
        verdicts=Verdicts(good=100, good_accepted=90, bad=100, bad_accepted=20),
    )
    accepted = [("x", 0.9, 1)] * 11 + [("y", 0.1, 1)] * 9 + [("x", None, 1)]
    metrics = validation_metrics([batch(accepted)], calibrations={"a": calibration})
    # 11 of 20 are accepted: (0.55 + 0.8 - 1) / (0.9 + 0.8 - 1)
    assert metrics["val/a/corrected"] == pytest.approx(0.5)
    assert metrics["val/a/corrected_low"] < 0.3
    assert metrics["val/a/corrected_high"] > 0.7
    # The judge's sensitivity on one source alone is not known.
    assert {"val/x/a", "val/y/a"} <= metrics.keys()
    assert not {"val/x/a/corrected", "val/y/a/corrected"} & metrics.keys()
    assert "val/reward/corrected" not in metrics
    chance = dataclasses.replace(
        calibration, verdicts=Verdicts(good=100, good_accepted=50, bad=100, bad_accepted=50)
    )
    assert not any(
        "corrected" in key
        for key in validation_metrics([batch(accepted)], calibrations={"a": chance})
    )


def test_means_over_batches_and_sources_without_what_is_missing() -> None:
    metrics = validation_metrics(
        [batch([("x", 1.0, 2), ("y", 0.0, 4)]), batch([("x", None, 6), ("x", 0.5, 8)])]
    )
    assert metrics == {
        "val/length": 5.0,  # (2 + 4 + 6 + 8) / 4
        "val/reward": 1.0,  # (2 + 0 + 1) / 3
        "val/a": 0.5,
        "val/x/reward": 1.5,
        "val/x/a": 0.75,
        "val/y/reward": 0.0,
        "val/y/a": 0.0,
        "val/reward/missing": 0.25,
        "val/a/missing": 0.25,
        "val/x/reward/missing": pytest.approx(1 / 3),
        "val/x/a/missing": pytest.approx(1 / 3),
    }


def test_nothing_but_missing_is_no_number() -> None:
    metrics = validation_metrics([batch([("", None, 1)])])
    assert metrics == {"val/length": 1.0, "val/reward/missing": 1.0, "val/a/missing": 1.0}


def grouped(
    prompts: list[tuple[str, list[float | None], list[str | None] | None]],
) -> tuple[Rollouts, RewardBatch]:
    """(data source, scores, answers) of each prompt; the reward is the score."""
    rows = [(source, value, 1) for source, values, _ in prompts for value in values]
    rollouts, rewards = batch(rows)
    answers = [answer for _, values, given in prompts for answer in given or [...] * len(values)]
    results = tuple(
        dataclasses.replace(result, extra={} if answer is ... else {"answer": answer})
        for result, answer in zip(rewards.scores.results[0], answers, strict=True)
    )
    scores = Scores(names=("a",), results=(results,))
    return Rollouts(
        responses=rollouts.responses, group_size=len(prompts[0][1])
    ), dataclasses.replace(rewards, scores=scores, rewards_B=rewards.rewards_B / 2)


def test_best_worst_and_spread_of_several_responses() -> None:
    metrics = validation_metrics(
        [grouped([("", [0.0, 3.0, 1.0], None)]), grouped([("", [2.0, 2.0, 2.0], None)])]
    )
    # pairs of 0, 1, 3: maxima 1, 3, 3, minima 0, 0, 1; the second prompt is always 2
    best, worst = (7 / 3 + 2) / 2, (1 / 3 + 2) / 2
    of_a = {
        "": 10 / 6,
        "/mean@3": (4 / 3 + 2) / 2,
        "/std@3": math.sqrt(14 / 9) / 2,  # of 0, 1, 3: (16 + 1 + 25) / 9 / 3
        "/best@2/mean": best,
        "/best@2/std": math.sqrt(8 / 9) / 2,
        "/best@2/se": (7 / 3 - 2) / 2 / math.sqrt(2),
        "/worst@2/mean": worst,
        "/worst@2/std": math.sqrt(2 / 9) / 2,
        "/worst@2/se": (2 - 1 / 3) / 2 / math.sqrt(2),
        "/best@3/mean": 2.5,
        "/best@3/std": 0.0,
        "/best@3/se": 0.5 / math.sqrt(2),
        "/worst@3/mean": 1.0,
        "/worst@3/std": 0.0,
        "/worst@3/se": 1 / math.sqrt(2),
    }
    wanted = {
        f"val/{name}{what}": value for name in ("reward", "a") for what, value in of_a.items()
    }
    assert metrics == pytest.approx({"val/length": 1.0, **wanted})


def test_prompts_with_too_few_verdicts_are_left_out_and_counted() -> None:
    metrics = validation_metrics(
        [
            grouped(
                [
                    ("", [0.0, 1.0, None, None], None),
                    ("", [0.0, 0.0, 0.0, 1.0], None),
                    ("", [None] * 4, None),
                ]
            )
        ]
    )
    assert metrics["val/a/mean@4"] == pytest.approx((0.5 + 0.25) / 2)
    assert metrics["val/a/best@2/mean"] == pytest.approx(
        (1.0 + 0.5) / 2
    )  # 3 of 6 pairs of the second hold its 1
    assert metrics["val/a/best@2/left_out"] == pytest.approx(1 / 3)
    assert metrics["val/a/best@4/mean"] == 1.0  # the second prompt alone
    assert metrics["val/a/best@4/left_out"] == pytest.approx(2 / 3)
    assert all(math.isfinite(value) for value in metrics.values())


def test_majority_by_source_where_a_component_returns_answers() -> None:
    x = ("x", [1.0, 1.0, 0.0, 0.0], ["18", " 18 ", "20", None])  # 18 wins
    y = ("y", [1.0, 0.0, 0.0, 0.0], ["5", None, None, "7"])  # two have no answer: that wins
    metrics = validation_metrics([grouped([x, y])])
    assert metrics["val/x/a/maj@4/mean"] == 1.0
    assert metrics["val/y/a/maj@4/mean"] == 0.0
    assert metrics["val/a/maj@4/mean"] == metrics["val/reward/maj@4/mean"] == 0.5
    # x in pairs: (18, 18) 1, four times (18, other) 0.5, (20, none) 0: 3 / 6
    assert metrics["val/x/a/maj@2/mean"] == pytest.approx(0.5)
    assert not any(
        "maj@" in key for key in validation_metrics([grouped([("x", [1.0, 0.0], None)])])
    )


def test_one_response_a_prompt_has_no_at_k() -> None:
    assert not any("@" in key for key in validation_metrics([grouped([("", [1.0], ["18"])])]))


def test_greedy_unless_asked_to_sample() -> None:
    config = Config()
    val = config.actor_rollout_ref.rollout.val_kwargs
    val.temperature, val.top_p, val.top_k, val.n = 0.7, 0.9, 40, 2
    greedy = validation_sampling(config)
    assert (greedy.temperature, greedy.top_p, greedy.top_k, greedy.n) == (0.0, 1.0, -1, 2)
    val.do_sample = True
    sampled = validation_sampling(config)
    assert (sampled.temperature, sampled.top_p, sampled.top_k) == (0.7, 0.9, 40)
