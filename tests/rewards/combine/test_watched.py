"""Weight 0: scored and logged, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rmrl.config.schema.reward import RewardConfig
from rmrl.errors import MissingVerdictsError, RewardError
from rmrl.rewards.combine import combine, takes_part
from rmrl.rewards.combine.schedules import Schedule
from rmrl.rewards.session.missing import check_missing
from rmrl.rewards.transforms import Chain
from rmrl.types import ScoreResult, Scores
from tests.rewards.combine.parts import combined, process, rewards, rewards_of, rows, spec

HOWS = ("weighted_sum", "fold", "product", "min", "max", "soft_min")


def test_a_component_of_weight_zero_masks_no_row():
    # 300 rows, the third component lacks 39 of them
    lacking = [None if b % 300 < 39 else 1.0 for b in range(300)]
    specs = [spec("a", 1.0), spec("b", 0.3), spec("c", 0.0)]
    batch = combined(specs, [1.0] * 300, [0.5] * 300, lacking)
    assert rewards(batch) == [1.15] * 300
    assert sum(r.status == "timeout" for r in batch.scores.results[2]) == 39


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("policy", ["mask", "renormalize", "impute", "fail"])
def test_no_policy_of_a_watched_component_touches_the_reward(how: str, policy: str):
    watched = spec("b", 0.0, policy, value=7.0 if policy == "impute" else None)
    alone = combined([spec("a", 2.0)], [3.0], how=how)
    assert rewards_of([spec("a", 2.0), watched], [3.0], [None], how=how) == rewards(alone)


def test_lexicographic_leaves_a_watched_key_out():
    specs = [spec("a", 0.0), spec("b", 1.0)]
    assert rewards_of(specs, [None, 9.0, 1.0], [2.0, 1.0, 3.0], how="lexicographic") == [
        0.5,
        0.0,
        1.0,
    ]


def test_on_missing_fail_counts_where_the_weight_is_not_zero():
    ramp = {"b": Schedule(((0.0, 0.0), (10.0, 0.0), (20.0, 1.0)))}
    specs = [spec("a", 1.0), spec("b", 0.0, "fail")]
    assert rewards_of(specs, [1.0], [None], schedules=ramp, step=10) == [1.0]
    with pytest.raises(RewardError, match="reward 'b' gave no verdict for 1 of 1"):
        combined(specs, [1.0], [None], schedules=ramp, step=11)


def test_the_weight_of_the_row_decides_with_by_source():
    # b has weight 0 for chat and 1 for math: it masks the math row alone
    specs = [spec("a", 1.0), spec("b", 1.0, sources={"chat": 0.0, "math": 1.0})]
    about = rows(3, sources=["chat", "math", "math"])
    batch = combined(specs, [1.0, 1.0, 1.0], [None, None, None], about=about)
    assert rewards(batch) == [1.0, None, None]
    assert batch.takes_part_BC is not None
    assert batch.takes_part_BC.tolist() == [[True, False], [True, True], [True, True]]
    # of the rows that count, all are missing
    with pytest.raises(
        MissingVerdictsError, match="reward 'b' gave no verdict for 2 of 2 responses"
    ):
        check_missing(batch.scores, allowed=0.2, by_cause={}, takes_part_BC=batch.takes_part_BC)


def test_a_row_of_watched_components_alone_has_the_reward_zero():
    assert rewards_of([spec("a", 0.0), spec("b", 0.0)], [1.0, None], [None, None]) == [0.0, 0.0]
    assert rewards_of([spec("a", 0.0)], [1.0, None], how="lexicographic") == [0.5, 0.5]


def test_renormalize_has_nothing_to_rescale_where_the_rest_is_watched():
    assert rewards_of([spec("a", 1.0, "renormalize"), spec("b", 0.0)], [None], [7.0]) == [None]


@pytest.mark.parametrize("how", ["gate", "weighted_sum"])
def test_a_gate_of_weight_zero_still_gates_and_its_missing_verdict_still_masks(how: str):
    behind: dict[str, Any] = {} if how == "gate" else {"gates": ("g",)}
    specs = [spec("g", 0.0), spec("b", 1.0, **behind)]
    batch = combined(
        specs, [1.0, 0.0, None], [5.0, 5.0, 5.0], how=how, gates=["g"] if how == "gate" else []
    )
    assert rewards(batch) == [5.0, 0.0, None]
    with pytest.raises(MissingVerdictsError, match="reward 'g' gave no verdict for 1 of 3"):
        check_missing(batch.scores, allowed=0.2, by_cause={}, takes_part_BC=batch.takes_part_BC)


def test_a_gate_in_front_of_watched_components_is_watched():
    specs = [spec("a", 1.0), spec("g", 0.0), spec("b", 0.0, gates=("g",))]
    assert rewards_of(specs, [1.0], [None], ["skipped"]) == [1.0]


def test_the_gates_of_an_ensembles_members_take_part():
    panel = spec("panel", 1.0)
    ensemble = type(panel)(
        **{
            **{f: getattr(panel, f) for f in ("name", "weight")},
            "kind": "ensemble",
            "options": SimpleNamespace(of=["m"]),
        }
    )
    gate, member = spec("g", 0.0), spec("m", 0.0, gates=("g",), part_of="panel")
    weights_BC = np.asarray([[1.0, 0.0]])
    assert takes_part(
        [ensemble, gate], weights_BC, settings=RewardConfig(), parts=[member]
    ).tolist() == [[True, True]]
    assert takes_part([ensemble, gate], weights_BC, settings=RewardConfig()).tolist() == [
        [True, False]
    ]
    # The gate has no verdict, so the member behind it leaves no honest number.
    missing = ScoreResult(value=None, status="timeout")
    batch = combine(
        Scores(names=("panel", "g"), results=((ScoreResult(value=2.0),), (missing,))),
        [ensemble, gate],
        rows(1),
        settings=RewardConfig(),
        weights_BC=weights_BC,
        transforms=[Chain(), Chain()],
        parts=[member],
    )
    assert rewards(batch) == [None]


def test_a_watched_process_reward_sends_nothing_to_tokens():
    specs = [spec("a", 1.0), spec("p", 0.0, tokens=True)]
    batch = combined(specs, [1.0], [process(0.5, (3, 0.25), (9, 0.5))])
    assert rewards(batch) == [1.0]
    assert batch.steps == ()
    assert rewards_of(specs, [1.0], [process(0.5, (3, 0.25))], how="min") == [1.0]
