"""weighted_sum and fold, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np

from tests.rewards.combine.parts import combined, rewards, rewards_of, rows, spec


def test_weights_are_used_as_given():
    batch = combined([spec("a", 0.3), spec("b", 0.5)], [1.0, 2.0], [4.0, -1.0])
    assert rewards(batch) == [2.3, 0.1]  # 0.3 * 1 + 0.5 * 4;  0.3 * 2 - 0.5 * 1
    assert batch.weights_C.tolist() == [0.3, 0.5]


def test_negative_and_zero_weights():
    assert rewards_of(
        [spec("a", 1.0), spec("b", -2.0), spec("c", 0.0)], [1.0], [0.25], [1e300]
    ) == [0.5]


def test_rows_that_lack_nothing_are_untouched_to_the_last_bit():
    weights = [0.1 * k + 0.01 for k in range(12)]
    specs = [spec(f"c{k}", w, "renormalize") for k, w in enumerate(weights)]
    values = np.random.default_rng(0).normal(size=(12, 2))
    columns = [[float(v[0]), None if k == 3 else float(v[1])] for k, v in enumerate(values)]
    expected = float((values[:, 0] * np.asarray(weights))[None, :].sum(axis=1)[0])
    assert float(combined(specs, *columns).rewards_B[0]) == expected


def test_what_was_skipped_adds_nothing_and_rescales_nothing():
    specs = [spec("a", 0.3), spec("b", 0.5, "fail")]
    assert rewards_of(specs, [1.0, 2.0], [4.0, "skipped"]) == [2.3, 0.6]
    assert rewards_of(specs, ["skipped"], ["skipped"]) == [0.0]


def test_fold_adds_and_multiplies_in_order():
    specs = [spec("a", 1.0), spec("b", 0.5, op="add"), spec("c", 2.0, op="mul")]
    # (1 + 0.5 * 4) * 2 * 3 = 18;  (1 + 0) * 2 * -1 = -2
    assert rewards_of(specs, [1.0, 1.0], [4.0, 0.0], [3.0, -1.0], how="fold") == [18.0, -2.0]


def test_fold_starts_from_zero():
    assert rewards_of([spec("a", 1.0, op="mul"), spec("b", 1.0)], [5.0], [2.0], how="fold") == [2.0]
    assert rewards_of([spec("a", 0.0), spec("b", 2.0, op="mul")], [5.0], [2.0], how="fold") == [0.0]


def test_a_factor_of_weight_zero_is_left_out_of_a_fold():
    assert rewards_of([spec("a", 1.0), spec("b", 0.0, op="mul")], [5.0], [2.0], how="fold") == [5.0]
    assert rewards_of(
        [spec("a", 1.0), spec("b", 0.0, op="mul"), spec("c", 2.0, op="mul")],
        [5.0],
        [2.0],
        [0.5],
        how="fold",
    ) == [5.0]


def test_fold_passes_over_what_a_row_lacks():
    specs = [spec("a", 1.0), spec("b", 1.0, "renormalize", op="mul")]
    # without b the other weight is doubled: 2 * 3, never 3 * 0
    assert rewards_of(specs, [3.0, 3.0], [2.0, None], how="fold") == [6.0, 6.0]
    assert rewards_of(specs, [4.0], [None], how="fold") == [8.0]


def test_fold_without_its_start_is_started_by_the_next():
    specs = [spec("a", 1.0, "renormalize"), spec("b", 1.0, op="mul")]
    assert rewards_of(specs, [None, 2.0], [3.0, 3.0], how="fold") == [6.0, 6.0]  # 2 * 3;  2 * 3


def test_a_fold_that_lacks_its_first_components_is_started_by_the_first_one_present():
    """a is missing and b has weight 0, so c starts the total: the weights 1 and 1 of a and c become
    2 for c, 2 * 3."""
    specs = [spec("a", 1.0, "renormalize"), spec("b", 0.0, op="mul"), spec("c", 1.0, op="mul")]
    assert rewards_of(specs, [None], [5.0], [3.0], how="fold") == [6.0]


def test_fold_over_skipped_components():
    specs = [spec("a", 1.0), spec("b", 1.0, op="mul"), spec("c", 3.0)]
    # row 0: a is behind a closed gate, so b multiplies 0; 0 * 5 + 3 * 2.  row 1: b is left out; 4 +
    # 3 * 2
    assert rewards_of(specs, ["skipped", 4.0], [5.0, "skipped"], [2.0, 2.0], how="fold") == [
        6.0,
        10.0,
    ]


def test_fold_starts_with_the_first_component_of_the_rows_source():
    specs = [spec("a", sources={"math": 1.0}), spec("b", op="mul")]
    assert rewards_of(
        specs, [2.0, 9.0], [3.0, 3.0], how="fold", about=rows(2, sources=["math", "chat"])
    ) == [6.0, 3.0]


def test_fold_with_mask_and_impute():
    specs = [spec("a", 1.0), spec("b", 1.0, "impute", op="mul", value=0.5)]
    assert rewards_of(specs, [4.0, None], [None, 1.0], how="fold") == [2.0, None]
