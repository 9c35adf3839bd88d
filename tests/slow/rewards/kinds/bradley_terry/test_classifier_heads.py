"""Heads with several labels on vLLM: the numbers of transformers' own text-classification
pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_process import run_in_engine_process
from tests.rewards.kinds.bradley_terry.test_classifier_heads import (
    conversations,
    of_pipeline,
    pairs,
    scored,
    written,
)


@pytest.mark.parametrize("which", ["llama", "pairs"])
@pytest.mark.parametrize("problem_type", ["multi_label_classification", "regression", ""])
def test_vllm_has_the_numbers_of_transformers_pipeline(
    which: str, problem_type: str, tmp_path: Path
) -> None:
    """An activation applied twice would show: sigmoid of a sigmoid is never below 0.5."""
    path = written(tmp_path / "model", which, ("toxic", "insult", "threat"), problem_type)
    expected = of_pipeline(path, conversations() if which == "llama" else pairs())
    (found,) = run_in_engine_process(scored, path, "vllm", {"label": "insult"})
    for (score, values), wanted in zip(found, expected, strict=True):
        assert values == pytest.approx(wanted, abs=1e-4)
        assert score == values["insult"]
