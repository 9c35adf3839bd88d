"""Every sentence about a configuration that cannot combine."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.config.schema.reward import RewardConfig
from rmrl.rewards.combine import COMBINERS, combine_problems


def problems(*names: str, **settings: Any) -> list[str]:
    return combine_problems(RewardConfig(models=list(names), **settings), names)


def test_every_combiner_works_with_what_it_needs():
    needs: dict[str, dict[str, Any]] = {
        "gate": {"gates": ["a"]},
        "fold": {"combine_ops": ["add", "mul"]},
        "soft_min": {"soft_min_beta": 0.0},
        "lexicographic": {"lexicographic_tolerance": 0.1, "weights": [1, -1]},
    }
    assert {how: problems("a", "b", combine=how, **needs.get(how, {})) for how in COMBINERS} == {
        how: [] for how in COMBINERS
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"combine": "wieghted_sum"},
            "reward.combine='wieghted_sum': not a choice; did you mean 'weighted_sum'?",
        ),
        (
            {"combine_ops": ["add", "mul"]},
            "reward.combine_ops belongs to reward.combine=fold and has no effect on weighted_sum",
        ),
        (
            {"combine": "fold", "combine_ops": ["add"]},
            "reward.combine_ops has 1 value for 2 models (a, b): give add or mul for each",
        ),
        (
            {"combine": "fold", "combine_ops": ["add", "div"]},
            "reward.combine_ops: 'div' is not a choice; known: add, mul",
        ),
        (
            {"combine": "fold", "combine_ops": ["mul", "add"]},
            "starts with mul: the fold starts from 0",
        ),
        (
            {"combine": "fold", "combine_ops": ["add", "mul"], "weights": [0, 1]},
            (
                "weight 0 leaves a reward out, so the fold starts with mul from 0 and every reward"
                " would be 0"
            ),
        ),
        ({"combine": "gate"}, "reward.combine=gate without reward.gates"),
        ({"combine": "gate", "gates": ["c"]}, "reward.gates: no reward named 'c'; known: a, b"),
        ({"combine": "gate", "gates": ["a", "b"]}, "names every reward: nothing is left"),
        (
            {"combine": "min", "gates": ["a"]},
            "reward.gates=['a'] belongs to reward.combine=gate and has no effect on min",
        ),
        ({"gate_above": float("nan")}, "reward.gate_above=nan: give a finite number"),
        (
            {"combine": "soft_min", "soft_min_beta": -1.0},
            "reward.soft_min_beta=-1.0: give a finite number that is not negative",
        ),
        (
            {"soft_min_beta": 2.0},
            (
                "reward.soft_min_beta belongs to reward.combine=soft_min and has no effect on"
                " weighted_sum"
            ),
        ),
        (
            {"combine": "soft_min", "weights": [1.0, -0.5]},
            "reward.weights has a negative weight and reward.combine=soft_min",
        ),
        (
            {"combine": "soft_min", "weight_schedules": {"a": [[0, -1], [9, 1]]}},
            "reward.weight_schedules.a has a negative weight",
        ),
        (
            {
                "combine": "soft_min",
                "by_source": {"math": {"models": ["a", "b"], "weights": [1, -2]}},
            },
            "reward.by_source.math.weights has a negative weight",
        ),
        (
            {"lexicographic_tolerance": 0.5},
            "reward.lexicographic_tolerance belongs to reward.combine=lexicographic",
        ),
        (
            {"combine": "lexicographic", "weights": [0.3, 0.5]},
            "reward.weights=[0.3, 0.5] with reward.combine=lexicographic: the order",
        ),
        (
            {"weight_schedules": {"c": [[0, 1]]}},
            "reward.weight_schedules.c: no reward of that name; known: a, b",
        ),
        (
            {"weight_schedules": {"a": [[5, 1], [5, 2]]}},
            "steps must rise from point to point, seen 5, 5",
        ),
        (
            {"by_source": {"math": ["a"]}},
            "reward.by_source.math=['a']: give {models: [<name>, ...], weights: [<number>, ...]}",
        ),
        (
            {"by_source": {"math": {"models": []}}},
            "reward.by_source.math={'models': []}: give {models:",
        ),
        (
            {"by_source": {"math": {"models": ["a"], "wieghts": [1]}}},
            "reward.by_source.math.wieghts: no such entry; did you mean 'weights'?",
        ),
        (
            {"by_source": {"math": {"models": ["a", "a"]}}},
            "reward.by_source.math.models names one reward twice (a, a)",
        ),
        (
            {"by_source": {"math": {"models": ["a"], "weights": [1, 2]}}},
            "reward.by_source.math.weights has 2 values for 1 model (a)",
        ),
        (
            {"by_source": {"math": {"models": ["a"], "weights": ["x"]}}},
            "reward.by_source.math.weights=['x']: give one finite number",
        ),
        (
            {"transforms": {"c": "sigmoid"}},
            "reward.transforms.c: no reward of that name; known: a, b",
        ),
        (
            {"transforms": {"a": {"kind": "sgimoid"}}},
            "reward.transforms.a: transform kind: nothing named 'sgimoid'; did you mean 'sigmoid'?",
        ),
        (
            {"combine": "product", "specs": {"a": {"to_tokens": True}}},
            "reward 'a' sends scores to tokens",
        ),
    ],
)
def test_errors_state_the_problem(settings: dict[str, Any], said: str):
    found = problems("a", "b", **settings)
    assert len(found) == 1, found
    assert said in found[0]


def test_rewards_that_only_a_source_has_are_known():
    settings = {
        "by_source": {"math": {"models": ["m"], "weights": [2]}},
        "transforms": {"m": "sigmoid"},
        "weight_schedules": {"m": [[0, 1]]},
    }
    assert problems("a", combine="gate", gates=["m"], **settings) == []


@pytest.mark.parametrize(
    "other_weights",
    [
        {"by_source": {"math": {"models": ["a", "b"]}}},
        {"weight_schedules": {"a": [[0, 0], [9, 1]]}},
    ],
)
def test_a_weight_of_zero_may_lead_a_fold_where_other_weights_apply(other_weights: dict[str, Any]):
    folded = {"combine": "fold", "combine_ops": ["add", "mul"], "weights": [0, 1]}
    assert problems("a", "b", **folded, **other_weights) == []


def test_all_problems_are_told_at_once():
    found = problems(
        "a",
        combine="min",
        gates=["c"],
        combine_ops=["add", "sub"],
        transforms={"a": [{"kind": "clip"}, 3]},
    )
    assert len(found) == 6
