"""Several adapters on one engine of vLLM, as tests/inference/scoring/test_adapters.py has them on
transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_models import write_adapter
from tests.engine_process import run_in_engine_process
from tests.inference.scoring.test_adapters import check, folder, scenario

__all__ = ["folder"]


@pytest.mark.parametrize("runner", ["generate", "pooling"])
def test_vllm(folder: Path, runner: str) -> None:
    check(run_in_engine_process(scenario, str(folder), "vllm", runner, timeout_s=400), runner)


def test_vllm_on_a_real_model(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "judge").symlink_to(smollm2)
    for letter, rank in (("a", 8), ("b", 16)):
        adapter = tmp_path / f"judge-{letter}"
        merged = tmp_path / f"judge-{letter}-merged"
        write_adapter(adapter, tmp_path / "judge", seed=rank, rank=rank, merged=merged)
    check(
        run_in_engine_process(scenario, str(tmp_path), "vllm", "generate", timeout_s=600),
        "generate",
    )
