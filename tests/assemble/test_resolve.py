"""The `reward` section as a whole: every problem of names, combination and budgets at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.assemble.resolve import resolve
from rmrl.config.schema import RewardConfig


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """Folder with the rule `good`."""
    (tmp_path / "good.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    return 1.0\n"
    )
    return tmp_path


def problems(shipped: Path, **settings: object) -> str:
    config = RewardConfig(**{"models": ["good"], **settings})  # type: ignore[arg-type]
    return "\n".join(
        resolve(config, device="cpu", shipped_functions=shipped, trust_remote_code=False).problems
    )


def test_what_is_right_has_specs_and_no_problem(shipped: Path) -> None:
    found = resolve(
        RewardConfig(models=["good"], weights=[0.5]),
        device="cpu",
        shipped_functions=shipped,
        trust_remote_code=False,
    )
    assert [(spec.name, spec.kind, spec.weight) for spec in found.specs] == [("good", "rule", 0.5)]
    assert found.problems == []


def test_problems_of_several_parts_come_together(shipped: Path) -> None:
    said = problems(
        shipped, models=["goood"], combine="wieghted_sum", max_missing_by_cause={"dta": 0.1}
    )
    for words in ("did you mean 'good'", "wieghted_sum", "dta"):
        assert words in said


def test_a_folder_that_is_not_there(shipped: Path) -> None:
    assert "nowhere" in problems(shipped, functions_dir=str(shipped / "nowhere"))


def test_a_transform_that_is_not_there(shipped: Path) -> None:
    assert "did you mean 'scale'" in problems(shipped, transforms={"good": {"kind": "scal"}})
