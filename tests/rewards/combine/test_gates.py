"""Closed gates: nothing is counted behind them, and nothing is missing."""

from __future__ import annotations

import numpy as np

from rmrl.rewards.specs.spec import RewardSpec, SourceWeights
from tests.rewards.combine.parts import combined, rewards, rewards_of, rows, spec


def test_components_count_only_where_the_gate_holds():
    specs = [spec("format", 0.5), spec("helpful", 2.0)]
    batch = combined(specs, [1.0, 0.0], [3.0, 3.0], how="gate", gates=["format"])
    assert rewards(batch) == [6.5, 0.0]  # 0.5 * 1 + 2 * 3;  0.5 * 0 alone
    assert batch.columns_BC is not None
    np.testing.assert_array_equal(batch.columns_BC, [[1.0, 3.0], [0.0, np.nan]])


def test_lazy_and_eager_scoring_give_the_same_reward():
    specs = [
        spec("format", 0.5),
        spec("helpful", 2.0, transforms=({"kind": "standardize", "by": "batch", "eps": 0.0},)),
    ]
    eager = combined(specs, [1.0, 0.0, 1.0], [3.0, 900.0, 5.0], how="gate", gates=["format"])
    lazy = combined(specs, [1.0, 0.0, 1.0], [3.0, "skipped", 5.0], how="gate", gates=["format"])
    # 3 and 5 standardize to -1/sqrt(2) and 1/sqrt(2) (std sqrt(2)); 900 stands behind a closed gate
    # and shapes nothing
    assert rewards(eager) == rewards(lazy) == [round(0.5 - 2**0.5, 9), 0.0, round(0.5 + 2**0.5, 9)]


def test_the_gate_is_read_before_its_transform():
    format_ = spec("format", transforms=({"kind": "scale", "offset": -1.0},))
    assert rewards_of(
        [format_, spec("b")], [1.0, 0.0], [5.0, 5.0], how="gate", gates=["format"]
    ) == [5.0, -1.0]


def test_gate_above():
    specs = [spec("judge", 0.0), spec("b")]
    assert rewards_of(
        specs, [6.0, 7.0, 7.1], [5.0] * 3, how="gate", gates=["judge"], gate_above=7.0
    ) == [0.0, 0.0, 5.0]


def test_several_gates_must_all_hold():
    specs = [spec("g", 0.0), spec("h", 0.0), spec("b")]
    assert rewards_of(specs, [1, 1, 0], [1, 0, 1], [5, 5, 5], how="gate", gates=["g", "h"]) == [
        5.0,
        0.0,
        0.0,
    ]


def test_a_missing_verdict_behind_a_closed_gate_is_not_missing():
    specs = [spec("format"), spec("helpful", policy="fail")]
    assert rewards_of(specs, [0.0], [None], how="gate", gates=["format"]) == [0.0]


def test_a_gate_without_a_verdict_holds_nothing_open():
    assert rewards_of([spec("g"), spec("b")], [None], [5.0], how="gate", gates=["g"]) == [None]
    imputed = spec("g", policy="impute", value=1.0)
    assert rewards_of([imputed, spec("b")], [None], [5.0], how="gate", gates=["g"]) == [1.0]
    passed_over = spec("g", policy="renormalize")
    assert rewards_of([passed_over, spec("b")], [None], [5.0], how="gate", gates=["g"]) == [None]


def test_a_gate_of_one_reward_alone_goes_with_any_combiner():
    specs = [spec("format"), spec("helpful", gates=("format",)), spec("brief")]
    columns = ([1.0, 0.0], [3.0, 3.0], [-1.0, -1.0])
    assert rewards_of(specs, *columns) == [3.0, -1.0]
    assert rewards_of(specs, *columns, how="max") == [3.0, 0.0]


def test_a_gate_behind_a_closed_gate_is_closed():
    specs = [spec("c", gates=("b",)), spec("b", gates=("a",)), spec("a")]
    # b holds by its number, but stands behind a: so c does not count either
    assert rewards_of(specs, [100.0, 100.0], [10.0, 10.0], [0.0, 1.0]) == [0.0, 111.0]


def test_a_gate_that_has_no_part_in_a_source_is_no_gate_there():
    specs = [spec("format", sources={"math": 1.0}), spec("helpful")]
    about = rows(3, sources=["math", "math", "chat"])
    assert rewards_of(
        specs, [1.0, 0.0, "skipped"], [2.0, 2.0, 2.0], how="gate", gates=["format"], about=about
    ) == [3.0, 0.0, 2.0]


# --- counts_at

RULE_SCORES = [0.0, 0.5, 1.0]


def judged(op: str, *, weight: float = 0.3) -> list[RewardSpec]:
    """A rule, and a judge that is asked where the rule is not 0 and counts where it is 1."""
    return [spec("rule"), spec("judge", weight, op=op, gates=("rule",), counts_at={"rule": 1.0})]


def test_a_component_counts_0_where_another_has_not_the_score_it_needs():
    # add: rule + 0.3 * judge;  mul: rule * 0.3 * judge, so that a judge that does not count makes
    # the reward 0
    columns = (RULE_SCORES, ["skipped", 0.8, 0.8])
    assert rewards_of(judged("add"), *columns, how="fold") == [0.0, 0.5, 1.24]
    assert rewards_of(judged("mul"), *columns, how="fold") == [0.0, 0.0, 0.24]
    assert rewards_of(judged("add"), *columns) == [0.0, 0.5, 1.24]


def test_what_does_not_count_is_not_missing_and_shapes_no_statistics():
    failed = combined(judged("add"), RULE_SCORES, [None, None, 0.8], how="fold")
    assert rewards(failed) == [0.0, 0.5, 1.24]
    scaled = [
        judged("add")[0],
        spec(
            "judge",
            counts_at={"rule": 1.0},
            transforms=({"kind": "standardize", "by": "batch", "eps": 0.0},),
        ),
    ]
    # 3 and 5 standardize to -1/sqrt(2) and 1/sqrt(2); the 900 of a row whose rule is not 1 takes no
    # part
    batch = combined(scaled, [1.0, 0.5, 1.0], [3.0, 900.0, 5.0])
    assert rewards(batch) == [round(1 - 0.5**0.5, 9), 0.5, round(1 + 0.5**0.5, 9)]


def test_a_missing_verdict_of_the_other_component_becomes_no_number():
    assert rewards_of(judged("add"), [None], [0.8], how="fold") == [None]
    passed_over = [spec("rule", policy="renormalize"), judged("add")[1]]
    assert rewards_of(passed_over, [None], [0.8], how="fold") == [None]


def test_a_score_that_another_source_has_is_not_compared():
    about = rows(3, sources=["a", "b", "b"])
    sources = SourceWeights({"a": 1.0}, None)
    specs = [spec("rule", sources=sources), spec("judge", counts_at={"rule": 1.0})]
    assert rewards_of(specs, [0.5, 9.0, 9.0], [2.0, 3.0, 4.0], about=about) == [0.5, 3.0, 4.0]
