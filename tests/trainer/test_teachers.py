"""Token rewards of teachers: numbers computed by hand, and a whole run of fakes whose policy becomes
its teacher."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rmrl.algorithms.kl import KLController
from rmrl.config.schema import AlgorithmConfig, KLControlConfig
from rmrl.rewards.kinds.teacher.reward import TeacherReward
from rmrl.rewards.residency import Residency, plan_engines
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.batches import add_advantages, keep_informative
from rmrl.trainer.check_algorithm import algorithm_problems
from rmrl.trainer.scored_rollouts import concatenate
from rmrl.trainer.teachers import teacher_token_rewards
from rmrl.types import Ragged, TeacherTokens
from tests.rewards.parts import engine, fake_host
from tests.support.fake_backend import TOY_TOKENS, WEIGHT_NAME
from tests.trainer.fake_run import fake_run, records, rule, small_config, train_and_close
from tests.trainer.test_batches import rewards, rollouts, sampled, scored


def said(
    logprobs: list[float], *, weight: float = 1.0, clip: float = math.inf, name: str = "big"
) -> TeacherTokens:
    return TeacherTokens(
        name=name, weight=weight, clip=clip, logprobs=np.asarray(logprobs, dtype=np.float32)
    )


OLD = Ragged.of([[-1.0, -2.0], [-0.5], [-3.0, -3.0]], np.float32)
MASK = Ragged(np.ones(5, np.float32), OLD.lengths)


def test_a_tokens_reward_is_the_weighted_log_ratio():
    """w * (log p_teacher - log p_policy): 0.5 * (-0.5 + 1), 0.5 * (-4 + 2); -0.25 + 0.5."""
    teachers = [(said([-0.5, -4.0], weight=0.5),), (said([-0.25], weight=1.0),), ()]
    found, metrics = teacher_token_rewards(teachers, OLD, MASK)
    assert [row.tolist() for row in found.rows()] == [[0.25, -1.0], [0.25], [0.0, 0.0]]
    # mean of 0.5, -2 and 0.25, before weights
    assert metrics == {"score/big/log_ratio": pytest.approx(-1.25 / 3), "score/big/clipped": 0.0}


def test_a_hole_gets_no_reward_and_is_in_no_statistic():
    """0.5 * (-0.5 + 1) on the first token; the second is a tool's, so neither -2 nor its clip
    count."""
    mask = Ragged.of([[1.0, 0.0], [1.0], [1.0, 1.0]], np.float32)
    teachers = [(said([-0.5, -4.0], weight=0.5, clip=1.0),), (), ()]
    token_rewards, metrics = teacher_token_rewards(teachers, OLD, mask)
    assert token_rewards.rows()[0].tolist() == [0.25, 0.0]
    assert metrics == {"score/big/log_ratio": 0.5, "score/big/clipped": 0.0}


def test_the_clip_bounds_a_tokens_log_ratio_before_the_weight():
    """-2 becomes -1, then times 3; the metric keeps -2."""
    found, metrics = teacher_token_rewards(
        [(said([-0.5, -4.0], weight=3.0, clip=1.0),), (), ()], OLD, MASK
    )
    assert found.rows()[0].tolist() == [1.5, -3.0]
    assert metrics == {"score/big/log_ratio": -0.75, "score/big/clipped": 0.5}


def test_teachers_of_one_response_add_up_and_each_is_logged():
    """0.5 * 0.5 + 2 * (-1 + 1) and 0.5 * -2 + 2 * (-1 + 2)."""
    both = (said([-0.5, -4.0], weight=0.5), said([-1.0, -1.0], weight=2.0, name="other"))
    found, metrics = teacher_token_rewards([both, (), ()], OLD, MASK)
    assert found.rows()[0].tolist() == [0.25, 1.0]
    assert metrics["score/other/log_ratio"] == 0.5


def test_a_teacher_that_is_the_policy_rewards_nothing():
    teachers = [(said(row.tolist()),) for row in OLD.rows()]
    found, metrics = teacher_token_rewards(teachers, OLD, MASK)
    assert found.values.tolist() == [0.0] * 5
    assert metrics == {"score/big/log_ratio": 0.0, "score/big/clipped": 0.0}


def test_the_log_ratios_reach_the_advantages_beside_the_outcome():
    """Rewards 0 and 2 in Dr. GRPO: -1 and 1 for each token."""
    batch = dataclasses.replace(
        scored([0.0, 2.0], group_size=2), teachers=((said([-1.0, -0.25]),), ())
    )
    old = Ragged.of([[-0.5, -0.5]] * 2, np.float32)
    batch = dataclasses.replace(batch, train=dataclasses.replace(batch.train, old_logprobs=old))
    settings = AlgorithmConfig(adv_estimator="distill", norm_adv_by_std_in_grpo=False)
    trained, metrics = add_advantages(batch, settings, KLController(KLControlConfig()), decode=repr)
    assert trained.train.advantages is not None
    assert [row.tolist() for row in trained.train.advantages.rows()] == [[-1.5, -0.75], [1.0, 1.0]]
    assert metrics["score/big/log_ratio"] == -0.125


def test_teachers_stay_with_their_rows():
    first = dataclasses.replace(rewards([1.0, math.nan]), teachers=((said([-1.0] * 2),), ()))
    second = dataclasses.replace(rewards([1.0, 2.0]), teachers=((), (said([-3.0] * 2),)))
    made = [rollouts([2, 2], group_size=2) for _ in range(2)]
    joined, batch = concatenate([(made[0], first), (made[1], second)])
    kept = keep_informative(sampled(joined, batch))  # the second row has no reward
    assert [[t.logprobs[0] for t in row] for row in kept.teachers] == [[-1.0], [], [-3.0]]
    swapped = kept.select(np.asarray([2, 0]))
    assert [[t.logprobs[0] for t in row] for row in swapped.teachers] == [[-3.0], [-1.0]]


# --- a run


def teacher(name: str = "big", **changes: Any) -> RewardSpec:
    """A fake teacher that gives token t (below 64) the probability (t + 1) / 2080."""
    logprobs = {t: math.log((t + 1) / 2080) for t in range(TOY_TOKENS)}
    script = {"token_logprobs": logprobs, "max_model_len": 128}
    defaults: dict[str, Any] = {
        "weight": 1.0,
        "options": TeacherReward.Options(),
        "engines": {"main": engine(path="toy", kwargs=script)},
    }
    return RewardSpec(name=name, kind="teacher", **(defaults | changes))


class Taught(Scorer):
    """The scorer of the run's settings, with teachers in the place of the rule."""

    taught: Sequence[RewardSpec] = ()

    def __init__(self, specs: Sequence[RewardSpec], settings: Any, **more: Any) -> None:
        host = fake_host()
        more["residency"] = Residency(lambda _: host, plan_engines(self.taught))
        super().__init__(self.taught, settings, **more)


def go(folder: Path, steps: int, specs: Sequence[RewardSpec], **changed: Any) -> Any:
    folder.mkdir(exist_ok=True)
    run = fake_run(
        folder,
        total_steps=steps,
        scorer=type("Mine", (Taught,), {"taught": specs}),
        **{
            "algorithm__adv_estimator": "distill",
            "actor_rollout_ref__actor__loss_agg_mode": "token-mean",
            **changed,
        },
    )
    asyncio.run(train_and_close(run))
    return run, records(run.out_dir / "metrics.jsonl")


def policy_of(run: Any) -> torch.Tensor:
    """Log-probabilities of the learner's only distribution at the end."""
    (saved,) = run.out_dir.glob("checkpoints/*/policy/toy.safetensors")
    return torch.log_softmax(load_file(saved)[WEIGHT_NAME], dim=0)


def divergence(run: Any) -> float:
    """KL(policy || teacher) at the end, in nats."""
    policy = policy_of(run)
    taught = torch.log(torch.arange(1, TOY_TOKENS + 1) / 2080)
    return float((policy.exp() * (policy - taught)).sum())


def test_a_policy_becomes_its_teacher(tmp_path: Path):
    """KL(policy || teacher) is 0.2755 nats at the start, where the policy is uniform: -log 64 minus
    the mean of log((t + 1) / 2080)."""
    start = -math.log(64) - sum(math.log((t + 1) / 2080) for t in range(64)) / 64
    assert start == pytest.approx(0.2755, abs=1e-4)
    run, lines = go(tmp_path, 60, [teacher()], actor_rollout_ref__actor__optim__lr=5.0)
    ratios = [line["score/big/log_ratio"] for line in lines]
    assert np.mean(ratios[:3]) == pytest.approx(-start, abs=0.15)
    assert abs(np.mean(ratios[-10:])) < 0.01
    assert divergence(run) < 1e-4
    assert all(line["score/big/clipped"] == 0.0 for line in lines)
    # Without another reward there is none, and each token's advantage is its log-ratio.
    assert all(line["reward/mean"] == 0.0 for line in lines)
    assert lines[0]["advantage/mean"] == pytest.approx(ratios[0], abs=1e-5)


def test_two_teachers_meet_in_their_geometric_mean(tmp_path: Path):
    """Weights 0.5 and 0.5 of p and of the uniform q: the policy becomes sqrt(p q), normalised, the
    minimum of 0.5 KL(.|p) + 0.5 KL(.|q)."""
    flat = {t: -math.log(64) for t in range(TOY_TOKENS)}
    script = {"token_logprobs": flat, "max_model_len": 128}
    other = teacher("flat", engines={"main": engine(path="flat", kwargs=script)}, weight=0.5)
    both = [teacher(weight=0.5), other]
    run, _ = go(tmp_path, 60, both, actor_rollout_ref__actor__optim__lr=5.0)
    middle = np.sqrt(np.arange(1, 65))
    assert policy_of(run).exp().numpy() == pytest.approx(middle / middle.sum(), abs=1e-3)


def test_a_teacher_and_an_outcome_train_together(tmp_path: Path):
    """The rule pays for odd tokens, the teacher is uniform: odd tokens become likelier than with
    the teacher alone, and not the only ones as with the rule alone."""
    flat = {t: -math.log(64) for t in range(TOY_TOKENS)}
    script = {"token_logprobs": flat, "max_model_len": 128}
    folder = tmp_path / "rule"
    folder.mkdir()
    taught = [teacher(engines={"main": engine(path="flat", kwargs=script)}), rule(folder)]
    run, lines = go(tmp_path, 20, taught, actor_rollout_ref__actor__optim__lr=5.0)
    odd = float(policy_of(run).exp()[1::2].sum())
    assert 0.55 < odd < 0.95
    assert lines[-1]["reward/mean"] > lines[0]["reward/mean"]


# --- checks before a run


def test_teachers_alone_have_no_contrast_to_filter_by(tmp_path: Path):
    config = small_config(tmp_path, algorithm__filter_groups__enable=True)
    (problem,) = algorithm_problems(config, [teacher()])
    assert "with teachers alone" in problem
    assert list(algorithm_problems(config, [teacher(), rule(tmp_path)])) == []


def test_estimators_without_token_rewards_refuse_a_teacher(tmp_path: Path):
    config = small_config(tmp_path, algorithm__adv_estimator="gdpo")
    (problem,) = algorithm_problems(config, [teacher()])
    assert "cannot take the token rewards of teacher 'big'" in problem
    plain = TeacherReward.Options(to_tokens=False)
    assert list(algorithm_problems(config, [teacher(options=plain)])) == []


@pytest.mark.parametrize("name", ["gdpo", "grpo_passk", "maxrl"])
def test_a_teacher_that_only_watches_is_no_matter_of_the_estimator(tmp_path: Path, name: str):
    config = small_config(tmp_path, algorithm__adv_estimator=name)
    watched = [teacher(weight=0.0), rule(tmp_path)]
    assert list(algorithm_problems(config, watched)) == []
    config.reward.weight_schedules = {"big": [[0, 0.0], [10, 1.0]]}
    (problem,) = algorithm_problems(config, watched)
    assert "cannot take the token rewards of teacher 'big'" in problem
    config.reward.weight_schedules = {}
    (problem,) = algorithm_problems(
        config, [teacher(weight=0.0, sources={"maths": 1.0}), *watched[1:]]
    )
    assert "cannot take the token rewards of teacher 'big'" in problem


def test_a_rule_beside_a_teacher_needs_a_group(tmp_path: Path):
    alone = {"algorithm__adv_estimator": "distill", "actor_rollout_ref__rollout__n": 1}
    config = small_config(tmp_path, **alone)
    both = [teacher(), rule(tmp_path)]
    (problem,) = algorithm_problems(config, both)
    assert problem.startswith(
        "actor_rollout_ref.rollout.n=1 with algorithm.adv_estimator=distill: reward 'parity' would"
        " have no effect"
    )
    assert list(algorithm_problems(config, [teacher()])) == []
    watcher = dataclasses.replace(rule(tmp_path), weight=0.0)
    assert list(algorithm_problems(config, [teacher(), watcher])) == []
    config.actor_rollout_ref.rollout.n = 2
    assert list(algorithm_problems(config, both)) == []
    whitened = small_config(
        tmp_path, **(alone | {"algorithm__adv_estimator": "reinforce_plus_plus"})
    )
    assert list(algorithm_problems(whitened, both)) == []
