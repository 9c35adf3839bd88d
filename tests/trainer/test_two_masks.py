"""Rewards and statistics go by the response mask, losses by the kept mask: what rollout correction
rejects changes no advantage."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.algorithms import ADVANTAGES, estimator_named
from rmrl.algorithms.kl import KLController
from rmrl.backends.base import TrainSettings
from rmrl.backends.objective import divisor, weight_and_tokens, weighted_loss, weighted_value_loss
from rmrl.config.schema import (
    ActorConfig,
    AlgorithmConfig,
    CriticConfig,
    KLControlConfig,
    ModelConfig,
    RolloutCorrectionConfig,
)
from rmrl.trainer.batches import ScoredBatch, add_advantages, correct_rollout
from rmrl.types import Metrics, Ragged, Step, TrainBatch
from tests.trainer.fake_run import FakeParts, fake_run, records, train_and_close
from tests.trainer.test_batches import scored

FAR = 3.0
"""log pi_old - log pi_rollout of a token that is rejected: a ratio of 20."""
SPREAD = [-1.5, -0.5, 0.5, 1.5]
"""Rewards 1, 2, 3, 4 minus their mean."""


def letters(tokens: Any) -> str:
    """One character for each token, as `scored`'s responses could have been written."""
    return "t" * len(tokens)


def with_streams(
    batch: ScoredBatch, far: list[list[float]], ref: list[list[float]] | None = None
) -> ScoredBatch:
    """Old log-probabilities lie `far` above those of the rollout; the reference's lie `ref` below
    the old ones."""
    assert batch.train.rollout_logprobs is not None
    old = [
        row + np.asarray(apart)
        for row, apart in zip(batch.train.rollout_logprobs.rows(), far, strict=True)
    ]
    below = ref or [[0.0] * len(row) for row in old]
    reference = [row - np.asarray(apart) for row, apart in zip(old, below, strict=True)]
    streams = {
        "old_logprobs": Ragged.of(old, np.float32),
        "ref_logprobs": Ragged.of(reference, np.float32),
    }
    return dataclasses.replace(batch, train=dataclasses.replace(batch.train, **streams))


def estimated(
    batch: ScoredBatch, level: str | None, controller: KLController | None = None, **settings: Any
) -> tuple[ScoredBatch, Metrics]:
    """Corrected with `rollout_rs=level`, and with advantages."""
    correction = RolloutCorrectionConfig(rollout_rs=level)
    wanted = AlgorithmConfig(
        **{
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": False,
            "rollout_correction": correction,
            **settings,
        }
    )
    corrected, _ = correct_rollout(batch, wanted)
    return add_advantages(
        corrected, wanted, controller or KLController(KLControlConfig()), decode=letters
    )


def advantages(batch: ScoredBatch) -> list[list[float]]:
    assert batch.train.advantages is not None
    return [row.tolist() for row in batch.train.advantages.rows()]


def settings(**actor: Any) -> TrainSettings:
    return TrainSettings(
        model=ModelConfig(path="toy"), actor=ActorConfig(**actor), max_response_length=4
    )


def gradient(train: TrainBatch, **actor: Any) -> list[list[float]]:
    """Of the mini-batch's loss, by row, at the old log-probabilities."""
    assert train.old_logprobs is not None
    logprobs_N = torch.tensor(train.old_logprobs.values, requires_grad=True)
    wanted = settings(**actor)
    loss, _ = weighted_loss(train, logprobs_N, None, settings=wanted)
    weight, _ = weight_and_tokens(train, wanted)
    (gradient_N,) = torch.autograd.grad(loss / divisor(weight, wanted), logprobs_N)
    return [row.tolist() for row in Ragged(gradient_N.numpy(), train.response_mask.lengths).rows()]


def process_rewards_alone() -> ScoredBatch:
    """One group of four responses of two tokens; the step that ends with the second one scores 1,
    2, 3, 4."""
    return dataclasses.replace(
        scored([0.0] * 4, group_size=4),
        steps=tuple((Step(end=2, value=float(value)),) for value in (1, 2, 3, 4)),
    )


# --- rewards and statistics


def test_a_rejected_token_with_a_step_score_does_not_turn_the_best_response_into_the_worst() -> (
    None
):
    """Dr. GRPO gave [-0.5, 0.5, 1.5, -1.5]: the fourth response had lost its score."""
    far = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, FAR]]
    done, _ = estimated(with_streams(process_rewards_alone(), far), "token")
    assert advantages(done) == [[value, value] for value in SPREAD]
    assert done.train.kept_mask is not None
    assert [row.tolist() for row in done.train.kept_mask.rows()] == [[1, 1], [1, 1], [1, 1], [1, 0]]
    # token-mean over the seven tokens kept; on policy the gradient of -A r is -A
    wanted = [[-value / 7, -value / 7] for value in SPREAD]
    wanted[3][1] = 0.0
    for row, expected in zip(gradient(done.train), wanted, strict=True):
        assert row == pytest.approx(expected, rel=1e-6)


def test_a_rejected_response_stays_in_the_statistics_and_trains_nothing() -> None:
    """It gave [-1.5, -0.5, 0.5, 0] by the second token alone; the statistics are those of all four
    rows."""
    far = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, FAR]]
    done, metrics = estimated(with_streams(process_rewards_alone(), far), "sequence")
    assert [row[0] for row in advantages(done)] == SPREAD
    assert metrics["advantage/mean"] == pytest.approx(0.0, abs=1e-6)
    wanted = [[-value / 6, -value / 6] for value in (*SPREAD[:3], 0.0)]
    for row, expected in zip(gradient(done.train), wanted, strict=True):
        assert row == pytest.approx(expected, rel=1e-6)


def test_the_length_weights_of_opo_count_rejected_tokens() -> None:
    """Rewards 1 and 0, lengths 1 and 3: baseline 1 / 4. With two tokens of the second rejected it
    was 1 / 2."""
    batch = scored([1.0, 0.0], group_size=2, lengths=[1, 3])
    done, _ = estimated(with_streams(batch, [[0.0], [0.0, FAR, FAR]]), "token", adv_estimator="opo")
    assert advantages(done) == [[0.75], [-0.25] * 3]


def test_kl_in_reward_counts_rejected_tokens_and_so_does_its_controller() -> None:
    """k1 of 0.5 on a rejected token and 0 elsewhere: the row's penalty is 0.1 x 0.5, the mean KL (0
    + 0.25) / 2."""
    batch = with_streams(
        scored([1.0, 1.0], group_size=2), [[0.0, 0.0], [0.0, FAR]], ref=[[0.0, 0.0], [0.0, 0.5]]
    )
    controller = KLController(
        KLControlConfig(type="adaptive", kl_coef=0.1, horizon=10, target_kl=0.05)
    )
    done, metrics = estimated(batch, "token", controller, use_kl_in_reward=True)
    assert metrics["policy/ref_kl"] == pytest.approx(0.125)
    # rewards 1 and 0.95
    assert [row[0] for row in advantages(done)] == pytest.approx([0.025, -0.025], abs=1e-6)
    assert controller.coefficient == pytest.approx(0.1 * (1 + 0.2 * 2 / 10))


def test_all_rejected_still_moves_the_controller() -> None:
    batch = with_streams(
        scored([1.0, 1.0], group_size=2), [[FAR, FAR], [FAR, FAR]], ref=[[0.5, 0.5], [0.5, 0.5]]
    )
    controller = KLController(
        KLControlConfig(type="adaptive", kl_coef=0.1, horizon=10, target_kl=0.05)
    )
    estimated(batch, "token", controller, use_kl_in_reward=True)
    assert controller.coefficient == pytest.approx(0.1 * (1 + 0.2 * 2 / 10))


def test_the_reward_stays_on_the_last_token_when_that_one_is_rejected() -> None:
    """REINFORCE++ without discount: every token's return is 1 or 0 whatever is kept, and whitening
    counts all four."""
    batch = with_streams(scored([1.0, 0.0], group_size=1), [[0.0, FAR], [0.0, 0.0]])
    done, _ = estimated(batch, "token", adv_estimator="reinforce_plus_plus")
    scale = math.sqrt(1 / 3)  # deviations 0.5 four times, over N - 1
    assert advantages(done)[0] == pytest.approx([0.5 / scale] * 2, rel=1e-6)
    assert advantages(done)[1] == pytest.approx([-0.5 / scale] * 2, rel=1e-6)


def test_returns_and_values_pass_through_a_rejected_token() -> None:
    """GAE with lambda 0.5: rewards 0, 1 and values 0.2, 0.4: deltas 0.2 and 0.6, advantages 0.2 +
    0.5 x 0.6 and 0.6, plus values."""
    batch = with_streams(scored([1.0], group_size=1), [[0.0, FAR]])
    batch = dataclasses.replace(
        batch, train=dataclasses.replace(batch.train, values=Ragged.of([[0.2, 0.4]], np.float32))
    )
    done, _ = estimated(batch, "token", adv_estimator="gae", lam=0.5)
    assert done.train.returns is not None
    assert done.train.returns.values.tolist() == pytest.approx([0.7, 1.0])


def test_the_energies_of_rejected_tokens_keep_their_importance_weights() -> None:
    """A ratio of 20 bounded to 2, and its token rejected: energies 1 and 4 * 0.5, so the baseline of
    rewards 1 and 0 is 1 / 3. The loss has weight 0 there, and the batch no energies any more."""
    batch = with_streams(scored([1.0, 0.0], group_size=2, lengths=[1, 1]), [[0.0], [FAR]])
    energies = Ragged.of([[1.0], [0.5]], np.float32)
    batch = dataclasses.replace(batch, train=dataclasses.replace(batch.train, energies=energies))
    for rejection in (None, "token"):
        correction = RolloutCorrectionConfig(
            rollout_is="token", rollout_is_threshold=2.0, rollout_rs=rejection
        )
        done, metrics = estimated(
            batch, None, adv_estimator="optimal_token_baseline", rollout_correction=correction
        )
        assert [row[0] for row in advantages(done)] == pytest.approx([2 / 3, -1 / 3])
        assert metrics["otb/energy"] == 0.75
        assert done.train.energies is None
    assert done.train.rollout_weights is not None
    assert done.train.rollout_weights.values.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_no_advantage_depends_on_what_is_rejected(name: str, level: str) -> None:
    lengths = [2, 3, 1, 4]
    draw = np.random.default_rng(0)
    batch = scored([1.0, 2.0, 0.5, -1.0], group_size=2, lengths=lengths)
    kl = estimator_named(name).token_rewards
    far = [[FAR * float(draw.random() < 0.5) for _ in range(n)] for n in lengths]
    batch = with_streams(batch, far, ref=[draw.normal(size=n).tolist() for n in lengths])
    values = Ragged.of([draw.normal(size=n) for n in lengths], np.float32)
    energies = Ragged.of([draw.uniform(0, 2, size=n) for n in lengths], np.float32)
    batch = dataclasses.replace(
        batch,
        train=dataclasses.replace(batch.train, values=values, energies=energies),
        baselines_B=np.asarray([0.3, 0.1, 0.2, 0.0]),
    )
    plain, plain_metrics = estimated(batch, None, adv_estimator=name, use_kl_in_reward=kl)
    rejected, metrics = estimated(batch, level, adv_estimator=name, use_kl_in_reward=kl)
    assert rejected.train.kept_mask is not None
    assert rejected.train.kept_mask.values.sum() < sum(lengths)
    assert advantages(rejected) == advantages(plain)
    assert metrics == plain_metrics
    if plain.train.returns is not None:
        assert rejected.train.returns is not None
        assert rejected.train.returns.values.tolist() == plain.train.returns.values.tolist()


# --- losses

KEPT = TrainBatch(
    tokens=Ragged.of([[1, 2, 3, 4], [1, 5, 6], [1, 7]], np.int64),
    response_mask=Ragged.of([[1, 1, 1], [1, 1], [1]], np.float32),
    kept_mask=Ragged.of([[1, 0, 1], [0, 0], [1]], np.float32),
    advantages=Ragged.of([[2, 2, 2], [8, 8], [-1]], np.float32),
    old_logprobs=Ragged.of([[-1, -2, -3], [-1, -1], [-2]], np.float32),
    ref_logprobs=Ragged.of([[-1, 9, -3], [9, 9], [-2]], np.float32),
    values=Ragged.of([[0, 0, 0], [0, 0], [0]], np.float32),
    returns=Ragged.of([[1, 50, 2], [50, 50], [3]], np.float32),
)


@pytest.mark.parametrize(
    ("mode", "weight", "wanted"),
    [
        ("token-mean", 3, [[-2 / 3, 0, -2 / 3], [0, 0], [1 / 3]]),
        ("token-sum", 3, [[-2, 0, -2], [0, 0], [1]]),
        ("seq-mean-token-sum", 2, [[-1, 0, -1], [0, 0], [0.5]]),
        ("seq-mean-token-mean", 2, [[-0.5, 0, -0.5], [0, 0], [0.5]]),
        (
            "seq-mean-token-sum-norm",
            2,
            [[-0.25, 0, -0.25], [0, 0], [0.125]],
        ),  # longest response allowed: 4
    ],
)
def test_weights_and_divisors_count_the_tokens_kept(
    mode: str, weight: float, wanted: list[list[float]]
) -> None:
    assert weight_and_tokens(KEPT, settings(loss_agg_mode=mode)) == (weight, 3.0)
    rows = gradient(
        KEPT, loss_agg_mode=mode, use_kl_loss=True, kl_loss_type="mse", kl_loss_coef=1.0
    )
    for row, expected in zip(rows, wanted, strict=True):
        assert row == pytest.approx(expected, rel=1e-6)


def test_the_value_loss_and_explained_variance_count_the_tokens_kept() -> None:
    values_N = torch.zeros(6, requires_grad=True)
    wanted = dataclasses.replace(settings(), role="critic", critic=CriticConfig())
    loss, sums = weighted_value_loss(KEPT, values_N, settings=wanted)
    assert loss.item() == pytest.approx((1 + 4 + 9) / 2)
    assert torch.autograd.grad(loss, values_N)[0].tolist() == [-1, 0, -2, 0, 0, -3]
    assert sums["return"].item() == 6
    assert sums["return_squared"].item() == 14


def test_a_redrawn_row_takes_its_kept_mask_along() -> None:
    kept = KEPT.select([2, 0, 0]).kept_mask
    assert kept is not None
    assert [row.tolist() for row in kept.rows()] == [[1], [1, 0, 1], [1, 0, 1]]


@pytest.mark.parametrize("critic", [False, True])
def test_a_run_in_which_everything_is_rejected_moves_nothing_and_logs_finite_numbers(
    tmp_path: Path, critic: bool
) -> None:
    """Bounds far from 1 reject all: old and rollout log-probabilities differ by no more than
    rounding here."""
    correction = {
        "rollout_rs": "token",
        "rollout_rs_threshold": 3.0,
        "rollout_rs_threshold_lower": 2.0,
    }
    changed = {f"algorithm__rollout_correction__{key}": value for key, value in correction.items()}
    changed |= {"algorithm__adv_estimator": "gae"} if critic else {}
    parts = FakeParts()
    run = fake_run(
        tmp_path,
        total_steps=2,
        parts=parts,
        actor_rollout_ref__actor__ppo_mini_batch_size=2,
        **changed,
    )
    before = [
        dict(engine.weights())["toy.logits"].clone()
        for engine in parts.workers[0].object._engines.values()
    ]
    after = before

    async def go() -> None:
        nonlocal after
        engines = parts.workers[0].object._engines
        await train_and_close(run)
        after = [dict(engine.weights())["toy.logits"] for engine in engines.values()]

    asyncio.run(go())
    for was, now in zip(before, after, strict=True):
        assert torch.equal(was, now)
    for line in records(run.out_dir / "metrics.jsonl"):
        assert line["rollout_correction/rejected"] == 1.0
        assert line["policy/skipped_updates"] == 2.0
        assert line["policy/tokens"] == 0.0
        assert all(
            isinstance(value, int | float) and math.isfinite(value) for value in line.values()
        )
