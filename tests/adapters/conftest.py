"""A folder with three rules, and a configuration of them; shared rewards end with each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmrl.adapters import shared

RULES = {
    "right": (
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    if 'silent' in solution_str:\n"
        "        return None\n"
        "    return float(ground_truth in solution_str)\n"
    ),
    "length": (
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return len(solution_str) / 10\n"
    ),
    "counted": (
        "import pathlib\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    with pathlib.Path(extra_info['log']).open('a') as file:\n"
        "        file.write(solution_str + '\\n')\n"
        "    return 1.0\n"
    ),
}


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Make a configuration of the rules; keywords are keys of the section `reward`."""
    for name, text in RULES.items():
        (tmp_path / f"{name}.py").write_text(text)

    def make(*models: str, **section: Any) -> dict[str, Any]:
        reward = {
            "models": list(models),
            "functions_dir": str(tmp_path),
            "rule_workers": 1,
            "max_missing": 0.5,
        }
        return {"reward": {**reward, **section}, "trainer": {"device": "cpu"}}

    yield make
    shared.close_all()
