"""Responses of several turns: holes count nowhere, branches train their own tokens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rmrl.algorithms import aggregate
from rmrl.algorithms.kl import KLController
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.config.schema import (
    ActorConfig,
    AlgorithmConfig,
    Config,
    KLControlConfig,
    RolloutCorrectionConfig,
)
from rmrl.trainer.batches import (
    add_advantages,
    advantage_per_row,
    correct_rollout,
    keep_informative,
    logprob_difference,
    mini_batches,
    redraw,
    response_row,
)
from rmrl.trainer.check_algorithm import critic_settings
from rmrl.trainer.loss_weights import mask_truncated, weighted_mini_batches
from rmrl.trainer.step_rewards import step_token_rewards
from rmrl.turns import Branch, ResponseTurn
from rmrl.types import Prompt, Ragged, Response, Rollouts, Step
from tests.support.fake_backend import FakeTrainEngine
from tests.trainer.test_batches import rewards, sampled, scored

PROMPT = Prompt(id="p:0", messages=[{"role": "user", "content": "x"}], token_ids=(10, 20))

TWO_TURNS = Response(
    prompt=PROMPT,
    text="b",
    token_ids=[1, 2, 8, 9, 3],
    logprobs=[-0.1, -0.2, 0.0, 0.0, -0.3],
    mask=[True, True, False, False, True],
    turns=(
        ResponseTurn(start=0, end=2, role="assistant", stop="tool_calls", number=0),
        ResponseTurn(start=2, end=4, role="tool"),
        ResponseTurn(start=4, end=5, role="assistant", stop="stop", number=1),
    ),
    finish_reason="stop",
    policy_version=0,
)
"""Two sampled tokens, two of a tool, one sampled."""

FORKED = dataclasses.replace(
    TWO_TURNS,
    token_ids=[1, 2, 8, 3],
    logprobs=[-0.1, -0.2, 0.0, -0.3],
    mask=[True, True, False, True],
    turns=(
        ResponseTurn(start=0, end=2, role="assistant", number=0),
        ResponseTurn(start=2, end=3, role="user"),
        ResponseTurn(start=3, end=4, role="assistant", number=1),
    ),
    branches=(
        Branch(prompt_ids=(10, 20), length=2),
        Branch(prompt_ids=(10, 20, 7), length=2),
    ),
)
"""The template writes the first turn as 7, which the second branch reads and does not train."""


def batch_of(*responses: Response, values: list[float], group_size: int = 2):
    made = Rollouts(responses=responses, group_size=group_size)
    return keep_informative(sampled(made, rewards(values)))


def advantages_of(batch, **settings):
    settings = {"adv_estimator": "grpo", **settings}
    controller = KLController(KLControlConfig())
    return add_advantages(batch, AlgorithmConfig(**settings), controller, decode=repr)


def test_sampled_tokens_count():
    assert (TWO_TURNS.sampled, FORKED.sampled) == (3, 3)
    assert response_row(TWO_TURNS, group=0).tokens == 3
    assert dataclasses.replace(TWO_TURNS) == TWO_TURNS
    assert dataclasses.replace(TWO_TURNS, mask=None) != TWO_TURNS


def test_a_row_of_two_turns_is_its_tokens_with_a_mask():
    batch = batch_of(TWO_TURNS, TWO_TURNS, values=[1.0, 0.0])
    assert batch.train.tokens.rows()[0].tolist() == [10, 20, 1, 2, 8, 9, 3]
    assert batch.train.response_mask.rows()[0].tolist() == [1, 1, 0, 0, 1]
    assert batch.branches_B.tolist() == [1, 1]
    batch, _ = advantages_of(batch, norm_adv_by_std_in_grpo=False)
    # 1 - 0.5 on sampled tokens alone
    assert batch.train.advantages.rows()[0].tolist() == [0.5, 0.5, 0, 0, 0.5]
    assert advantage_per_row(batch, 2).tolist() == [0.5, -0.5]


def test_the_reward_is_on_the_last_sampled_token():
    """Discounted returns pass over the holes: .5, .5 ** 2 before it."""
    talkative = dataclasses.replace(TWO_TURNS, mask=[True, True, False, True, False])
    batch = batch_of(talkative, talkative, values=[1.0, 0.0])
    batch, _ = advantages_of(batch, adv_estimator="reinforce_plus_plus", gamma=0.5)
    values = np.asarray([0.25, 0.5, 1.0, 0.0, 0.0, 0.0])
    whitened = (values - values.mean()) / np.sqrt(values.var(ddof=1) + 1e-8)
    row = batch.train.advantages.rows()[0]
    assert row[[0, 1, 3]] == pytest.approx(whitened[:3], abs=1e-6)
    assert row[[2, 4]].tolist() == [0, 0]


def test_a_response_of_holes_does_not_train():
    silent = dataclasses.replace(TWO_TURNS, mask=[False] * 5)
    assert batch_of(silent, TWO_TURNS, values=[1.0, 2.0]).rows.tolist() == [1]


def test_branches_are_rows_and_their_context_does_not_train():
    batch = batch_of(FORKED, TWO_TURNS, values=[1.0, 0.0])
    rows = [row.tolist() for row in batch.train.tokens.rows()]
    assert rows == [[10, 20, 1, 2], [10, 20, 7, 8, 3], [10, 20, 1, 2, 8, 9, 3]]
    masks = [row.tolist() for row in batch.train.response_mask.rows()]
    assert masks == [[1, 1], [0, 1], [1, 1, 0, 0, 1]]
    logprobs = batch.train.rollout_logprobs.rows()
    assert logprobs[1].tolist() == pytest.approx([0.0, -0.3])
    assert batch.branches_B.tolist() == [2, 1]
    assert batch.train_groups.tolist() == [0, 0, 0]


def test_a_sample_counts_once_in_the_baseline_however_many_branches_it_has():
    """(1 + 0) / 2, not (1 + 1 + 0) / 3."""
    batch = batch_of(FORKED, TWO_TURNS, values=[1.0, 0.0])
    batch, _ = advantages_of(batch, norm_adv_by_std_in_grpo=False)
    by_row = [row.tolist() for row in batch.train.advantages.rows()]
    assert by_row == [[0.5, 0.5], [0.0, 0.5], [-0.5, -0.5, 0, 0, -0.5]]
    assert advantage_per_row(batch, 2).tolist() == [0.5, -0.5]


def test_returns_run_through_all_branches_of_a_sample():
    """gamma .5, the reward 1 on the last token of the last branch."""
    batch = batch_of(FORKED, values=[1.0], group_size=1)
    batch, _ = advantages_of(batch, adv_estimator="reinforce_plus_plus", gamma=0.5)
    first, second = batch.train.advantages.rows()
    assert first[1] - first[0] == pytest.approx((second[1] - first[1]) / 2, rel=1e-5)


def test_a_masked_tail_takes_all_branches_out():
    cut = dataclasses.replace(FORKED, finish_reason="length")
    batch = batch_of(cut, TWO_TURNS, values=[1.0, 0.0])
    masked, metrics = mask_truncated(batch, AlgorithmConfig(mask_truncated_completions=True))
    masks = [row.tolist() for row in masked.train.kept_mask.rows()]
    assert masks == [[0, 0], [0, 0], [1, 1, 0, 0, 1]]
    assert metrics == {"policy/truncated_masked": 0.5}


def test_mini_batches_and_redrawn_rows_keep_branches_together():
    batch = batch_of(FORKED, TWO_TURNS, FORKED, FORKED, values=[1.0, 0.0, 1.0, 0.0])
    parts = list(mini_batches(batch.train, batch.train_groups, prompts=1, rng=None))
    assert [len(part) for part in parts] == [3, 4]
    again = batch.select(np.asarray([2, 1, 2]))
    assert again.branches_B.tolist() == [2, 1, 2]
    assert again.train.tokens.lengths.tolist() == [4, 5, 7, 4, 5]
    assert redraw(batch, AlgorithmConfig(), rng=np.random.default_rng(0))[0] is batch


def test_correction_judges_whole_responses():
    """The sampling engine said log .5 less for each token; a sequence's weight is the product over
    its three sampled tokens, 2 ** 3, in every branch."""
    batch = batch_of(FORKED, TWO_TURNS, values=[1.0, 0.0])
    old = batch.train.rollout_logprobs.values + np.float32(np.log(2.0))
    train = dataclasses.replace(
        batch.train, old_logprobs=Ragged(old, batch.train.response_mask.lengths)
    )
    batch = dataclasses.replace(batch, train=train)
    correction = RolloutCorrectionConfig(rollout_is="sequence", rollout_is_threshold=100.0)
    corrected, _ = correct_rollout(batch, AlgorithmConfig(rollout_correction=correction))
    weights = [row.tolist() for row in corrected.train.rollout_weights.rows()]
    masks = [row > 0 for row in corrected.train.response_mask.rows()]
    for row, mask in zip(weights, masks, strict=True):
        assert np.asarray(row)[mask] == pytest.approx(8.0, rel=1e-4)


def test_what_engines_say_of_holes_is_in_no_difference():
    batch = batch_of(TWO_TURNS, TWO_TURNS, values=[1.0, 0.0])
    old = np.where(batch.train.response_mask.values > 0, batch.train.rollout_logprobs.values, -9.0)
    lengths = batch.train.response_mask.lengths
    train = dataclasses.replace(batch.train, old_logprobs=Ragged(old.astype(np.float32), lengths))
    assert logprob_difference(train) == {
        "policy/rollout_logprob_diff": 0.0,
        "policy/rollout_logprob_diff_max": 0.0,
    }


def test_turns_get_their_scores_on_their_last_tokens():
    steps = [(Step(0, 0.5, turn=0), Step(0, -1.0, turn=1))]
    token_rewards = step_token_rewards(steps, [TWO_TURNS], repr)
    assert token_rewards.rows()[0].tolist() == [0, 0.5, 0, 0, -1.0]


def test_steps_of_a_text_are_places_in_the_last_turn():
    """The last turn's token 3 decodes to "b", which also stands in the first turn."""
    letters = {1: "b", 2: "c", 8: "d", 9: "e", 3: "b"}

    def decode(ids):
        return "".join(letters[int(token)] for token in ids)

    token_rewards = step_token_rewards([(Step(1, 1.0),)], [TWO_TURNS], decode)
    assert token_rewards.rows()[0].tolist() == [0, 0, 0, 0, 1.0]


@pytest.mark.parametrize("mode", aggregate.AGGREGATION_MODES)
@pytest.mark.parametrize("response", [TWO_TURNS, FORKED])
def test_weights_count_the_mask_alone(mode: str, response: Response):
    """A response with holes or branches weighs what its three sampled tokens weigh in one row."""
    batch = batch_of(response, response, values=[1.0, 0.0])
    plain = scored([1.0, 0.0], group_size=2, lengths=[3, 3])
    totals: list[tuple[float, float]] = []
    for each in (batch, plain):
        each, _ = advantages_of(each)
        actor = ActorConfig(loss_agg_mode=mode, ppo_mini_batch_size=1)
        (train,) = weighted_mini_batches(each, actor, max_length=9, rng=None)
        mask_BT = torch.from_numpy(train.loss_mask.padded(0))
        tokens_BT = None
        if train.unit_tokens is not None:
            tokens_BT = torch.from_numpy(train.unit_tokens.padded(0))
        further = {"max_length": 9, "unit_tokens_BT": tokens_BT}
        total = float(aggregate.total_weight(mask_BT, mode, **further))
        tokens_weigh = float(aggregate.token_weights(mask_BT, mode, **further).sum())
        totals.append((total, tokens_weigh))
    assert totals[0] == pytest.approx(totals[1])


@pytest.mark.parametrize("critic", [False, True])
def test_an_update_reads_nothing_of_a_hole(critic: bool):
    """NaN in every stream at the holes: the same weights and the same metrics."""
    batch = batch_of(TWO_TURNS, FORKED, values=[1.0, 0.0]).train
    lengths = batch.response_mask.lengths
    holes_N = batch.response_mask.values == 0
    results: list[tuple[list[float], dict[str, float]]] = []
    for garbage in (0.0, np.nan):
        streams: dict[str, Ragged] = {}
        for seed, name in enumerate(
            ("old_logprobs", "ref_logprobs", "advantages", "returns", "values")
        ):
            values_N = (
                np.random.default_rng(seed).normal(-4.16, 0.1, len(holes_N)).astype(np.float32)
            )
            streams[name] = Ragged(np.where(holes_N, np.float32(garbage), values_N), lengths)
        settings = TrainSettings(
            role="critic" if critic else "actor",
            model=Config().actor_rollout_ref.model,
            actor=ActorConfig(use_kl_loss=True, entropy_coeff=0.1),
            critic=critic_settings(Config()) if critic else None,
            total_steps=10,
        )
        engine = FakeTrainEngine(settings, ProcessSettings())
        metrics = engine.update([dataclasses.replace(batch, **streams)])
        ((_, weights),) = engine.weights()
        results.append((weights.tolist(), metrics))
    assert results[1] == results[0]
    assert any(results[0][0])
