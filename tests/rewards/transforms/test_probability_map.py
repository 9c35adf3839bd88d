"""The stored map: what is read back, what is refused, and the numbers it gives."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.errors import ConfigError
from rmrl.rewards.transforms.probability_map import (
    Curve,
    ProbabilityMap,
    Verdicts,
    parse_map,
    read_map,
)

LINE = Curve(method="isotonic", points=((1.0, 0.25), (3.0, 0.75)))
SIGMOID = Curve(method="platt", slope=2.0, intercept=-4.0)


def made(curve: Curve = LINE, **other: Any) -> ProbabilityMap:
    return ProbabilityMap(
        curve=curve,
        reward="judge",
        kind="rule",
        digest={"code": "abc"},
        threshold=0.5,
        folds=(curve,),
        verdicts=Verdicts(good=30, good_accepted=20, bad=30, bad_accepted=10),
        **other,
    )


def test_straight_lines_between_the_points_and_constant_outside() -> None:
    scores = np.asarray([0.0, 1.0, 2.0, 3.0, 9.0, np.nan])
    np.testing.assert_allclose(LINE.apply(scores), [0.25, 0.25, 0.5, 0.75, 0.75, np.nan])


def test_a_sigmoid_does_not_overflow() -> None:
    # 1 / (1 + e^-(2 * 2.5 - 4)) = 1 / (1 + e^-1)
    values = SIGMOID.apply(np.asarray([2.5, 2.0, 1e300, -1e300]))
    np.testing.assert_allclose(values, [0.731058579, 0.5, 1.0, 0.0])


@pytest.mark.parametrize("curve", [LINE, SIGMOID], ids=["isotonic", "platt"])
def test_what_is_written_is_read_back(curve: Curve, tmp_path: Path) -> None:
    before = made(curve, figures={"count": 60})
    path = tmp_path / "map.json"
    path.write_text(json.dumps(before.to_json()))
    assert read_map(str(path)) == before


def test_verdicts_are_of_the_threshold() -> None:
    assert made().accepted(np.asarray([1.9, 2.0, 2.1])).tolist() == [0, 1, 1]


def test_verdicts_are_the_mean_of_those_of_the_folds() -> None:
    """Of the two curves the first reaches 0.5 at 2.0, the second at 2.5."""
    second = Curve(method="isotonic", points=((2.0, 0.25), (3.0, 0.75)))
    both = dataclasses.replace(made(), folds=(LINE, second))
    assert both.accepted(np.asarray([1.9, 2.2, 2.6])).tolist() == [0, 0.5, 1]


WRONG: dict[str, dict[str, Any]] = {
    "another version": {"version": 1},
    "a method": {"method": "spline"},
    "falling probabilities": {"points": [[0, 0.5], [1, 0.4]]},
    "falling scores": {"points": [[1, 0.5], [1, 0.6]]},
    "no probability": {"points": [[0, 0.5], [1, 1.5]]},
    "one point": {"points": [[0, 0.5]]},
    "text for a number": {"points": [["0", 0.5], [1, 1]]},
    "a falling sigmoid": {"method": "platt", "slope": -1.0, "intercept": 0.0},
    "no reward": {"reward": {}},
    "no threshold": {"threshold": None},
    "no folds": {"folds": []},
    "a fold that falls": {"folds": [{"method": "isotonic", "points": [[0, 0.5], [1, 0.4]]}]},
    "no verdicts": {"verdicts": {}},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_no_map_is_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({**made().to_json(), **WRONG[name]}))
    with pytest.raises(ConfigError, match="is no calibration of this version"):
        read_map(str(path))


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a file that rmrl calibrate wrote"):
        read_map(str(tmp_path / "none.json"))
    path = tmp_path / "list.json"
    path.write_text("[1]")
    with pytest.raises(ConfigError, match="is no calibration"):
        read_map(str(path))


def test_parsing_refuses_other_values() -> None:
    with pytest.raises(ValueError, match="version"):
        parse_map({"version": 9})


def test_a_map_is_applied_without_scikit_learn() -> None:
    code = (
        "import sys, rmrl.rewards.transforms.calibrated;"
        "print([name for name in ('sklearn', 'scipy.stats') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
