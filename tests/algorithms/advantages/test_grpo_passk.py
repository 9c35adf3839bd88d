"""Pass@k advantages: the closed form against hand-computed numbers and against the sum over all
sets."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.algorithms.advantages.grpo_passk import added_to_the_best, grpo_passk
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs

PLAIN = AlgorithmConfig(norm_adv_by_std_in_grpo=False)


def advantages(
    rewards: list[float], groups: list[int], config: AlgorithmConfig = PLAIN, **extra: torch.Tensor
) -> torch.Tensor:
    inputs = AdvantageInputs(
        rewards_B=torch.tensor(rewards),
        group_ids_B=torch.tensor(groups),
        response_mask_BT=torch.ones(len(rewards), 2),
        **extra,
    )
    return grpo_passk(inputs, settings=config).advantages_BT[:, 1]


def test_only_the_best_of_the_group_gets_its_lead():
    # groups 5 and 2, interleaved: 4 - 3 and 9 - 1
    assert advantages([3.0, 9.0, 4.0, 1.0, 0.0], [5, 2, 5, 2, 5]).tolist() == [0, 8, 1, 0, 0]


def test_two_that_tie_for_the_best_get_nothing():
    assert advantages([1.0, 1.0, 0.0], [0, 0, 0]).tolist() == [0, 0, 0]


def test_no_contrast_and_a_group_of_one_get_exact_zeros():
    assert advantages([0.3, 0.3 + 6e-8, 5.0], [0, 0, 1]).tolist() == [0, 0, 0]


def test_divided_by_the_groups_deviation():
    # rewards 0 1 3: mean 4/3, squares (16 + 1 + 25) / 9, unbiased variance 7/3; lead 2
    found = advantages([0.0, 1.0, 3.0], [0, 0, 0], AlgorithmConfig())
    torch.testing.assert_close(
        found, torch.tensor([0.0, 0.0, 2 / (7 / 3) ** 0.5]), rtol=1e-5, atol=0
    )


def test_sets_of_two_out_of_three():
    # sets {1, 2}, {1, 5}, {2, 5}: the 2 leads by 1 once, the 5 by 4 and by 3; divided by the 3 sets
    config = AlgorithmConfig(norm_adv_by_std_in_grpo=False, passk_k=2)
    torch.testing.assert_close(
        advantages([2.0, 5.0, 1.0], [0, 0, 0], config), torch.tensor([1 / 3, 7 / 3, 0.0])
    )


def test_a_k_above_the_groups_size_means_the_whole_group():
    config = AlgorithmConfig(norm_adv_by_std_in_grpo=False, passk_k=8)
    assert advantages([2.0, 5.0, 1.0], [0, 0, 0], config).tolist() == [0, 3, 0]


@settings(max_examples=40, deadline=None)
@given(rewards=st.lists(st.integers(-5, 5), min_size=2, max_size=6), k=st.integers(2, 6))
def test_the_closed_form_is_the_mean_over_all_sets(rewards: list[int], k: int):
    k = min(k, len(rewards))
    expected = [0.0] * len(rewards)
    for chosen in itertools.combinations(range(len(rewards)), k):
        for i in chosen:
            others = max(rewards[j] for j in chosen if j != i)
            expected[i] += (max(rewards[i], others) - others) / math.comb(len(rewards), k)
    found = added_to_the_best(torch.tensor(rewards, dtype=torch.float64), k=k)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_k_must_leave_a_second_best():
    with pytest.raises(ConfigError, match=r"algorithm\.passk_k=1:.*use 2 or more, or null"):
        advantages([1.0, 2.0], [0, 0], AlgorithmConfig(passk_k=1))


def test_token_rewards_are_refused_with_what_to_use():
    named = "adv_estimator=grpo_passk .*token rewards.*use_kl_loss=true.*reinforce_plus_plus or gae"
    with pytest.raises(ConfigError, match=named):
        advantages([1.0, 2.0], [0, 0], token_rewards_BT=torch.zeros(2, 2))
