"""What holds for any scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmrl.rewards.combine import COMBINERS
from rmrl.rewards.session.missing import check_missing
from rmrl.rewards.transforms import TRANSFORMS
from rmrl.types import RewardBatch, Scores
from tests.rewards.combine.parts import combined, rows, spec

HOWS = list(COMBINERS)
CHAINS: dict[str, dict[str, Any]] = {
    "scale": {"factor": -2.0, "offset": 1.0},
    "clip": {"low": -1.0, "high": 1.0},
    "sigmoid": {},
    "piecewise": {"points": [[-5, 0], [0, 1], [5, 3]], "shape": "exponential"},
    "rank": {},
    "standardize": {"by": "group"},
    "overlong": {"max_length": 20, "buffer": 10},
    "length": {"target": 5, "per_token": 0.1},
    "length_residual": {"from_rows": 4},
    "cosine_length": {"max_length": 20},
    "calibrated": {"file": str(Path(__file__).with_name("calibration.json"))},
}
RUNS = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
SCORED = st.one_of(st.just("skipped"), st.integers(-40, 40).map(lambda n: n / 4))
SCORE = st.none() | SCORED
WEIGHT = st.sampled_from([0.0, 0.5, 1.0, 2.0])


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    count, components = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    policies = st.sampled_from(["mask", "renormalize", "impute"])
    return {
        "columns": [[draw(SCORE) for _ in range(count)] for _ in range(components)],
        "groups": [draw(st.integers(0, 2)) for _ in range(count)],
        "lengths": [draw(st.integers(0, 30)) for _ in range(count)],
        "specs": [
            {
                "weight": draw(WEIGHT),
                "policy": draw(policies),
                "op": draw(st.sampled_from(["add", "mul"])),
            }
            for _ in range(components)
        ],
        "transform": draw(st.sampled_from(sorted(CHAINS))),
    }


def run(case: dict[str, Any], how: str, *, order: list[int] | None = None) -> RewardBatch:
    order = list(range(len(case["groups"]))) if order is None else order
    specs = [
        spec(
            f"c{c}",
            s["weight"],
            s["policy"],
            op=s["op"],
            value=0.25 if s["policy"] == "impute" else None,
            transforms=_chain(case, c),
        )
        for c, s in enumerate(case["specs"])
    ]
    columns = [[column[b] for b in order] for column in case["columns"]]
    about = rows(
        len(order),
        groups=[case["groups"][b] for b in order],
        lengths=[case["lengths"][b] for b in order],
    )
    return combined(specs, *columns, how=how, about=about, gates=["c0"] if how == "gate" else [])


def _chain(case: dict[str, Any], c: int) -> tuple[dict[str, Any], ...]:
    return ({"kind": case["transform"], **CHAINS[case["transform"]]},) if c == 0 else ()


def test_all_transforms_are_tried():
    assert sorted(CHAINS) == list(TRANSFORMS)


@pytest.mark.parametrize("how", HOWS)
@RUNS
@given(case=cases(), seed=st.integers(0, 999))
def test_the_order_of_rows_does_not_matter(how: str, case: dict[str, Any], seed: int):
    order = [int(b) for b in np.random.default_rng(seed).permutation(len(case["groups"]))]
    straight, shuffled = run(case, how), run(case, how, order=order)
    np.testing.assert_array_equal(shuffled.keep_B, straight.keep_B[order])
    np.testing.assert_allclose(shuffled.rewards_B, straight.rewards_B[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("how", HOWS)
@RUNS
@given(case=cases())
def test_a_reward_is_a_finite_number_exactly_where_the_row_is_kept(how: str, case: dict[str, Any]):
    batch = run(case, how)
    np.testing.assert_array_equal(np.isfinite(batch.rewards_B), batch.keep_B)
    assert batch.columns_BC is not None
    # no verdict never becomes a number, whatever the transform
    assert np.isnan(batch.columns_BC[np.isnan(batch.scores.values_BC)]).all()


@pytest.mark.parametrize("how", HOWS)
@RUNS
@given(case=cases())
def test_a_masked_failure_always_masks_its_row_unless_it_is_watched_or_a_product_is_zero(
    how: str, case: dict[str, Any]
):
    case["specs"] = [{**s, "policy": "mask"} for s in case["specs"]]
    batch = run(case, how)
    weighted_C = np.asarray([s["weight"] != 0 for s in case["specs"]])
    failed_B = ((batch.scores.status_BC == "timeout") & weighted_C).any(axis=1)
    gate_closed_B = (
        ~(batch.scores.values_BC[:, 0] > 0)
        if how == "gate"
        else np.zeros(len(failed_B), dtype=bool)
    )
    zero_B = batch.rewards_B == 0
    assert (failed_B & batch.keep_B <= (zero_B if how == "product" else gate_closed_B)).all()


@st.composite
def watched(draw: st.DrawFn, count: int) -> tuple[int, dict[str, Any], list[Any]]:
    """(where it stands among the models, its entries, its verdicts)"""
    policy = draw(st.sampled_from(["mask", "renormalize", "impute", "fail"]))
    entries = {"weight": 0.0, "policy": policy, "op": draw(st.sampled_from(["add", "mul"]))}
    return draw(st.integers(0, 4)), entries, draw(st.lists(SCORE, min_size=count, max_size=count))


@pytest.mark.parametrize("how", HOWS)
@RUNS
@given(case=cases(), data=st.data())
def test_a_component_of_weight_zero_changes_nothing_whatever_it_lacks(
    how: str, case: dict[str, Any], data: st.DataObject
):
    # the first component has the transform and, with `gate`, is the gate: the watched one comes
    # behind it
    at, entries, column = data.draw(watched(len(case["groups"])))
    at = min(1 + at, len(case["specs"]))
    more = {**case, "specs": list(case["specs"]), "columns": list(case["columns"])}
    more["specs"].insert(at, entries)
    more["columns"].insert(at, column)
    plain, watching = run(case, how), run(more, how)
    np.testing.assert_array_equal(watching.rewards_B, plain.rewards_B)
    np.testing.assert_array_equal(watching.keep_B, plain.keep_B)
    assert watching.takes_part_BC is not None
    assert not watching.takes_part_BC[:, at].any()
    lacking = Scores(
        names=watching.scores.names[at : at + 1], results=watching.scores.results[at : at + 1]
    )
    check_missing(
        lacking,
        allowed=0.0,
        by_cause={"infrastructure": 0.0},
        takes_part_BC=watching.takes_part_BC[:, at : at + 1],
    )


@RUNS
@given(case=cases())
def test_what_stands_behind_a_closed_gate_has_no_say(case: dict[str, Any]):
    gate, *others = case["columns"]
    closed = [score is None or score == "skipped" or score <= 0 for score in gate]
    for put in (None, "skipped", 7.0):
        lazy = [
            [put if shut else score for shut, score in zip(closed, column, strict=True)]
            for column in others
        ]
        np.testing.assert_array_equal(
            run({**case, "columns": [gate, *lazy]}, "gate").rewards_B, run(case, "gate").rewards_B
        )


@RUNS
@given(
    scores=st.lists(st.floats(-100, 100), min_size=2, max_size=5),
    weights=st.lists(st.floats(0.1, 10), min_size=5, max_size=5),
    beta=st.floats(0.0, 1e6),
)
def test_soft_min_is_between_minimum_and_weighted_mean(
    scores: list[float], weights: list[float], beta: float
):
    specs = [spec(f"c{c}", weights[c]) for c in range(len(scores))]
    reward = float(
        combined(
            specs, *([score] for score in scores), how="soft_min", soft_min_beta=beta
        ).rewards_B[0]
    )
    shares = np.asarray(weights[: len(scores)]) / sum(weights[: len(scores)])
    assert min(scores) - 1e-6 <= reward <= float(shares @ np.asarray(scores)) + 1e-6


def test_property_tests_draw_the_same_examples_on_every_machine():
    assert settings.default is not None
    assert settings.default.derandomize
    assert settings.default.deadline is None
