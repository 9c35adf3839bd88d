"""Process rewards alone: dynamic sampling and PF-PPO go by a response's whole reward, the scores of
its steps included."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.config.schema import AlgorithmConfig, PFPPOConfig
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.session.session import Session
from rmrl.trainer.batches import redraw
from rmrl.trainer.scored_rollouts import contrast
from rmrl.trainer.step_rewards import rewards_with_steps, step_token_rewards
from rmrl.types import Response, RewardBatch, Step
from tests.trainer.fake_run import fake_run, records, train_and_close
from tests.trainer.test_batches import rewards, rollouts, scored

NAN = math.nan


class StepsOfTokens(Scorer):
    """The rule's score of a response as the scores of its steps, one per token: rewards of tokens,
    and no other."""

    async def finish(self, session: Session, *, step: int = 0, learn: bool = True) -> RewardBatch:
        batch = await super().finish(session, step=step, learn=learn)
        texts = [row.text for row in session.rows]
        steps = tuple(
            _spread(text, float(total)) for text, total in zip(texts, batch.rewards_B, strict=True)
        )
        return dataclasses.replace(batch, steps=steps, rewards_B=np.where(batch.keep_B, 0.0, NAN))


def _spread(text: str, total: float) -> tuple[Step, ...]:
    """Odd tokens share `total`; a step ends with each word."""
    words = text.split()
    odd = sum(int(word) % 2 for word in words)
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return tuple(
        Step(int(end), total / odd if int(word) % 2 else 0.0)
        for word, end in zip(words, ends, strict=True)
    )


def words(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))


def go(folder: Path, steps: int, *, process: bool, **changed: Any) -> list[dict[str, Any]]:
    """The metrics of a run that is rewarded by its steps alone, or by the same numbers for whole
    responses."""
    folder.mkdir()
    run = fake_run(
        folder, total_steps=steps, scorer=StepsOfTokens if process else Scorer, **changed
    )
    run.decode = words
    asyncio.run(train_and_close(run))
    return records(run.out_dir / "metrics.jsonl")


FILTERED = {
    "algorithm__filter_groups__enable": True,
    "algorithm__filter_groups__max_num_gen_batches": 2,
}
DRAWN = {"algorithm__use_pf_ppo": True, "algorithm__pf_ppo__reweight_method": "max_min"}


@pytest.mark.parametrize(
    ("changed", "name"), [(FILTERED, "group/chosen_fraction"), (DRAWN, "pf_ppo/distinct")]
)
def test_process_rewards_alone_train_as_the_same_rewards_of_whole_responses(
    tmp_path: Path, changed: dict[str, Any], name: str
) -> None:
    """With dynamic sampling no group was ever chosen and nothing trained; PF-PPO drew every row
    alike."""
    process = go(tmp_path / "process", 4, process=True, **changed)
    whole = go(tmp_path / "whole", 4, process=False, **changed)
    for ours, same in zip(process, whole, strict=True):
        assert ours["policy/grad_norm"] > 0
        for key in (
            name,
            "policy/grad_norm",
            "policy/tokens",
            "advantage/std",
            "group/constant_fraction",
        ):
            assert ours[key] == pytest.approx(same[key], rel=1e-4, abs=1e-6), key
    assert process[0][name] > 0


def test_the_whole_reward_of_a_response() -> None:
    steps = ((Step(3, 0.5), Step(5, -0.25)), (), (Step(2, 1.0),))
    assert rewards_with_steps(np.asarray([1.0, 2.0, NAN]), steps)[:2].tolist() == [1.25, 2.0]
    assert math.isnan(rewards_with_steps(np.asarray([1.0, 2.0, NAN]), steps)[2])
    assert rewards_with_steps(np.asarray([1.0, 2.0]), ()).tolist() == [1.0, 2.0]


def test_step_scores_make_contrast_and_can_unmake_it() -> None:
    """Rewards 0 0 | 1 0 | 0 0 with steps 1 2 | 0 1 | 1 and 0.5 + 0.5: contrast in the first group
    alone."""
    batch = dataclasses.replace(
        rewards([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
        steps=(
            (Step(1, 1.0),),
            (Step(1, 2.0),),
            (),
            (Step(1, 1.0),),
            (Step(1, 1.0),),
            (Step(1, 0.5), Step(2, 0.5)),
        ),
    )
    made = rollouts([2] * 6, group_size=2)
    assert (
        contrast(made, batch, None).tolist()
        == contrast(made, batch, "reward").tolist()
        == [True, True] + [False] * 4
    )
    assert contrast(made, batch, "r").tolist() == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]  # the component's own score


def test_what_cannot_train_makes_no_contrast() -> None:
    """A group is not chosen for an empty response, nor for a component's verdict on a response
    without a reward."""
    empty = rollouts([0, 2, 2, 2], group_size=2)
    assert contrast(empty, rewards([0.0, 1.0, 0.0, 1.0]), None).tolist() == [
        False,
        False,
        True,
        True,
    ]
    masked = dataclasses.replace(
        rewards([0.0, 1.0, 0.0, 1.0]), keep_B=np.asarray([False, True, True, True])
    )
    assert contrast(rollouts([2] * 4, group_size=2), masked, "r").tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_pf_ppo_draws_by_the_whole_reward() -> None:
    """Rewards 1 2 3 with steps 9 0 0: best 10, worst 2."""
    batch = dataclasses.replace(
        scored([1.0, 2.0, 3.0], group_size=3), steps=((Step(1, 9.0),), (), ())
    )
    wanted = AlgorithmConfig(use_pf_ppo=True, pf_ppo=PFPPOConfig(reweight_method="max_min"))
    drawn, _ = redraw(batch, wanted, rng=np.random.default_rng(0))
    assert set(drawn.rows.tolist()) == {0, 1}


def test_several_steps_on_one_token_are_added_up_before_they_are_rounded() -> None:
    steps = tuple(Step(1, value) for value in (1e8, 1.0, -1e8))
    response: Response = rollouts([1], group_size=1).responses[0]
    assert step_token_rewards(
        [steps], [response], lambda tokens: "t" * len(tokens)
    ).values.tolist() == [1.0]
