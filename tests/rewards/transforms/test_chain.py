"""Chains: what is typed, what is refused, what goes into the checkpoint."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rmrl.errors import CheckpointError, ConfigError
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.transforms import TRANSFORMS, Chain, chain_of, parse_transforms
from tests.rewards.combine.parts import rows


def apply(chain: Chain, values: Any, about: Rows | None = None, *, learn: bool = True) -> Any:
    """What the chain makes of scores that are all present."""
    scores = np.asarray(values, dtype=np.float64)
    present = np.ones(len(scores), dtype=bool)
    return chain.apply(scores, about or rows(len(scores)), present, learn=learn)


def run(raw: Any, values: list[float], **about: Any) -> list[float]:
    chain = chain_of(parse_transforms(raw, "t"), "t")
    return [round(float(v), 9) for v in apply(chain, values, rows(len(values), **about))]


def refused(raw: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse_transforms(raw, "reward.transforms.a")
    return error.value.problems


def test_what_may_be_typed():
    scale, clip = {"kind": "scale", "factor": 2}, {"kind": "clip", "low": 0}
    assert parse_transforms(None, "t") == ()
    assert parse_transforms("sigmoid", "t") == ({"kind": "sigmoid"},)
    assert parse_transforms(scale, "t") == (scale,)
    assert parse_transforms(["sigmoid", clip], "t") == ({"kind": "sigmoid"}, clip)


def test_transforms_are_applied_in_order():
    double, limit = {"kind": "scale", "factor": 2}, {"kind": "clip", "high": 3}
    assert run([double, limit], [1.0, 5.0]) == [2.0, 3.0]
    assert run([limit, double], [1.0, 5.0]) == [2.0, 6.0]
    assert run(None, [1.0]) == [1.0]


def test_names_for_the_table():
    raw = [{"kind": "standardize", "by": "group"}, {"kind": "clip", "low": -1}]
    assert chain_of(raw, "t").names == ("standardize(group)", "clip")
    assert Chain().names == ()


def test_all_problems_come_at_once():
    raw = [
        {"kind": "clp"},
        {"kind": "clip", "lw": 1, "high": "x"},
        {"kind": "overlong", "buffer": 3},
        {"kind": "scale", "factor": 0},
    ]
    expected = [
        "[0]: transform kind: nothing named 'clp'; did you mean 'clip'?",
        "[1].lw: no such entry",
        "[1].high='x': give a finite number or null",
        "[2] needs max_length, e.g. {kind: overlong, max_length: 4096, buffer: 512}",
        "[3].factor=0: ",
    ]
    for problem, words in zip(refused(raw), expected, strict=True):
        assert problem.startswith(f"reward.transforms.a{words}")


@pytest.mark.parametrize("raw", [3, True, {"factor": 2}, {"kind": 3}, [["sigmoid"]]])
def test_shapes_that_are_no_transform(raw: Any):
    [problem] = refused(raw)
    assert "give a name or entries with a kind" in problem


LINE = {"kind": "piecewise", "points": [[0, 1], [1, 2]]}
RUNNING = {"kind": "standardize", "by": "running"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("clip", "low and .high are both missing"),
        ({"kind": "clip", "low": 2, "high": 1}, "low=2 is not below high=1"),
        ({"kind": "scale", "factor": float("inf")}, "factor=inf: give a finite number"),
        ({"kind": "sigmoid", "temperature": 0}, "temperature=0: must be greater than 0"),
        ({"kind": "sigmoid", "temperature": True}, "temperature=True: give a finite number"),
        ("piecewise", "reward.transforms.a needs points, e.g. {kind: piecewise"),
        ({"kind": "piecewise", "points": [[0, 1]]}, "give at least two points"),
        (
            {"kind": "piecewise", "points": [[0, 1], [0, 2]]},
            "points: x must rise from point to point",
        ),
        ({**LINE, "shape": "linaer"}, "shape='linaer': not a choice; did you mean 'linear'?"),
        ({**LINE, "rate": 0.0}, "rate=0: give a number other than 0"),
        ({**LINE, "rate": -101.0}, "rate=-101: give a number other than 0, at most 100 in size"),
        ({"kind": "rank", "by": "grup"}, "by='grup': not a choice; did you mean 'group'?"),
        ("standardize", "reward.transforms.a needs by, e.g. {kind: standardize, by: group}"),
        ({"kind": "standardize", "by": "all"}, "by='all': not a choice"),
        ({"kind": "standardize", "by": "group", "decay": 0.9}, "decay=0.9 belongs to by: running"),
        ({**RUNNING, "decay": 1.0}, "decay=1: give a share between 0 and 1"),
        ({**RUNNING, "decay": 0.0}, "decay=0: give a share between 0 and 1"),
        ({"kind": "standardize", "by": "batch", "eps": -1}, "eps=-1: must not be negative"),
        ({"kind": "overlong", "max_length": 10, "buffer": 11}, "buffer=11 with max_length=10"),
        ({"kind": "overlong", "max_length": 10, "buffer": 5, "penalty": -1}, "penalty=-1: must be"),
        ({"kind": "length", "target": -1, "per_token": 0.1}, "target=-1: must not be negative"),
        ({"kind": "length", "target": 1, "per_token": 0}, "per_token=0: must be greater than 0"),
        (
            {"kind": "length", "target": 1, "per_token": 1, "at_most": 0},
            "at_most=0: must be greater",
        ),
        ({"kind": "cosine_length", "max_length": 0}, "max_length=0: must be greater than 0"),
        (
            {"kind": "cosine_length", "max_length": 9, "wrong_long": 0.5},
            "a wrong response could earn more",
        ),
    ],
)
def test_entries_that_cannot_work(raw: Any, words: str):
    [problem] = refused(raw)
    assert problem.startswith("reward.transforms.a")
    assert words in problem


def test_every_kind_has_an_example_of_itself():
    for kind in TRANSFORMS:
        assert TRANSFORMS[kind].example.startswith(f"{{kind: {kind}")


def test_values_that_do_not_exist_stay_out():
    chain = chain_of([{"kind": "standardize", "by": "batch", "eps": 0.0}], "t")
    out = chain.apply(
        np.asarray([1.0, np.nan, 3.0, 99.0]), rows(4), np.asarray([True, False, True, False])
    )
    root = 1 / 2**0.5  # mean 2, unbiased std sqrt(2)
    np.testing.assert_allclose(out, [-root, np.nan, root, np.nan])


def test_nothing_present_and_nothing_at_all():
    for kind, entries in {
        "rank": {},
        "standardize": {"by": "group"},
        "overlong": {"max_length": 9, "buffer": 3},
    }.items():
        chain = chain_of([{"kind": kind, **entries}], "t")
        assert np.isnan(chain.apply(np.asarray([1.0, 2.0]), rows(2), np.zeros(2, dtype=bool))).all()
        assert chain.apply(np.zeros(0), rows(0), np.zeros(0, dtype=bool)).shape == (0,)


def test_the_state_goes_through_json_and_back():
    entries = [{"kind": "clip", "low": 0.0}, {"kind": "standardize", "by": "running"}]
    chain, other = chain_of(entries, "t"), chain_of(entries, "t")
    apply(chain, [1.0, 2.0, 6.0])
    other.load_state_dict(json.loads(json.dumps(chain.state_dict())))
    assert list(chain.state_dict()) == ["1:standardize"]
    values = [0.0, 4.0, 8.0]
    np.testing.assert_array_equal(apply(other, values), apply(chain, values))


def test_a_state_of_other_transforms_is_refused():
    running = chain_of([{"kind": "standardize", "by": "running"}], "t")
    with pytest.raises(
        CheckpointError,
        match=r"statistics of 0:standardize but the transforms now are sigmoid, which keep nothing",
    ):
        chain_of([{"kind": "sigmoid"}], "t").load_state_dict(running.state_dict())
    with pytest.raises(CheckpointError, match="are torn"):
        running.load_state_dict({"0:standardize": {"count": 1}})


def test_without_learning_the_statistics_stay():
    chain = chain_of([{"kind": "standardize", "by": "running"}], "t")
    apply(chain, [1.0, 3.0])
    before = chain.state_dict()
    apply(chain, [100.0, 300.0], learn=False)
    assert chain.state_dict() == before
