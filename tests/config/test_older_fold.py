"""What older command lines add up to, against the trainer they were written for.

There (`rule` is the score of the row's rule):

    terms count where rule == 1, and are 0 elsewhere
    reward = rule + bge_weight * similarity;  then per model  add: reward + w * s   mul: reward * w
      * s
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rmrl.config.compat import translate
from rmrl.config.schema import Config
from rmrl.rewards.combine import combine, weights_matrix
from rmrl.rewards.entries.names import named_rewards
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import chain_of
from rmrl.types import ScoreResult, Scores

SKIPPED = ScoreResult(value=None, status="skipped")


def combined(ops: list[str], scores: dict[str, float], *, bge: bool = False) -> float:
    """The reward of one row with the rule `r` and two judges f and g of the weights 0.3 and 0.5,
    the similarity's being 0.25."""
    section = {
        "enable": True,
        "reward_function": ["f", "g"],
        "reward_weight": [0.3, 0.5],
        "reward_combine_func": ops,
    }
    config = Config(
        reward_model={
            **section,
            "model": {"path": ["/a", "/b"]},
            "use_bge": bge,
            "bge_weight": 0.25,
        }
    )
    config.custom_reward_function = {"path": "r.py"}
    translate(config)
    specs: list[RewardSpec] = []
    for named in named_rewards(config.reward):
        entries = config.reward.specs[named.name]
        gates, counts = tuple(entries.get("gate", ())), dict(entries.get("counts_at", {}))
        known = {
            "weight": named.weight,
            "combine_op": named.combine_op,
            "gates": gates,
            "counts_at": counts,
        }
        specs.append(RewardSpec(name=named.name, kind=entries["kind"], **known))
    asked = {spec.name: spec.name == "r" or scores["r"] != 0 for spec in specs}
    results = tuple(
        (ScoreResult(value=scores[spec.name]) if asked[spec.name] else SKIPPED,) for spec in specs
    )
    rows = Rows(
        group_ids_B=np.zeros(1, dtype=np.int64),
        lengths_B=np.ones(1, dtype=np.int64),
        truncated_B=np.zeros(1, dtype=bool),
        sources=("",),
    )
    batch = combine(
        Scores(names=tuple(spec.name for spec in specs), results=results),
        specs,
        rows,
        settings=config.reward,
        weights_BC=weights_matrix(specs, rows, step=0, schedules={}),
        transforms=[chain_of((), spec.name) for spec in specs],
    )
    return float(batch.rewards_B[0])


# f = 0.8 with weight 0.3 is 0.24, g = 0.6 with weight 0.5 is 0.3
TRUTH = [
    (["add", "add"], 0.0, 0.0),
    (["add", "add"], 0.5, 0.5),
    (["add", "add"], 1.0, 1.0 + 0.24 + 0.3),
    (["add", "mul"], 0.0, 0.0),
    (["add", "mul"], 0.5, 0.0),  # a judge that does not count is 0, and 0 times anything is 0
    (["add", "mul"], 1.0, (1.0 + 0.24) * 0.3),
    (["mul", "add"], 0.0, 0.0),
    (["mul", "add"], 0.5, 0.0),
    (["mul", "add"], 1.0, 0.24 + 0.3),
    (["mul", "mul"], 0.0, 0.0),
    (["mul", "mul"], 0.5, 0.0),
    (["mul", "mul"], 1.0, 0.24 * 0.3),
]


@pytest.mark.parametrize(("ops", "rule", "reward"), TRUTH)
def test_the_truth_table(ops: list[str], rule: float, reward: float):
    assert combined(ops, {"r": rule, "f": 0.8, "g": 0.6}) == pytest.approx(reward)


def test_the_similarity_is_added_before_the_models():
    scores = {"r": 1.0, "bge": 0.4, "f": 0.8, "g": 0.6}
    assert combined(["add", "mul"], scores, bge=True) == pytest.approx(
        (1.0 + 0.25 * 0.4 + 0.24) * 0.3
    )
    assert combined(["add", "mul"], {**scores, "r": 0.5}, bge=True) == 0.0
    assert combined(["add", "add"], {**scores, "r": 0.5}, bge=True) == 0.5


def original(ops: list[str], scores: dict[str, float]) -> float:
    """That trainer's loop over its models."""
    counts = scores["r"] == 1
    total = scores["r"] + 0.25 * (scores["bge"] if counts else 0.0)
    for op, weight, name in zip(ops, (0.3, 0.5), ("f", "g"), strict=True):
        score = scores[name] if counts else 0.0
        total = total + weight * score if op == "add" else total * weight * score
    return total


@pytest.mark.parametrize("ops", [list(ops) for ops in itertools.product(["add", "mul"], repeat=2)])
def test_every_fold_of_every_score(ops: list[str]):
    for rule, f, g in itertools.product(
        (0.0, 0.1, 0.5, 1.0), (-1.0, 0.0, 0.4, 1.0), (0.0, 0.7, 1.0)
    ):
        scores = {"r": rule, "f": f, "g": g, "bge": 0.37}
        assert combined(ops, scores, bge=True) == pytest.approx(original(ops, scores))
