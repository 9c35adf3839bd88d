"""benchmarks/gpu_check on CPU: some checks, and every night each that needs no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu_check.__main__ import main
from tests.benchmarks.test_gpu_check import ON_CPU, SKIPPED

ONE_OF_EACH = [
    "shared_prompts", "ipc_large", "driver_leaves", "megatron_step", "vllm_publish", "fsdp2_step",
]  # fmt: skip
"""Each engine, and each way to start processes."""


@pytest.mark.alone
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("checks", [ONE_OF_EACH, pytest.param(ON_CPU, marks=pytest.mark.nightly)])
def test_on_cpu(tmp_path: Path, checks: list[str]) -> None:
    out = tmp_path / "found.json"
    code = main(
        [
            "--device",
            "cpu",
            "--size",
            "tiny",
            "--dtype",
            "float32",
            "--out",
            str(out),
            "--only",
            *checks,
            *SKIPPED,
        ]
    )
    found = json.loads(out.read_text(encoding="utf-8"))["checks"]
    told = {check: (verdict["status"], verdict["reason"]) for check, verdict in found.items()}
    assert told == dict.fromkeys(checks, ("PASS", "")) | dict.fromkeys(
        SKIPPED, ("SKIP", "of CUDA alone")
    )
    assert code == 0


@pytest.mark.alone
def test_a_check_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model has no weights: every check that needs them fails, in a process of its own."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(
        '{"vocab_size": 50, "model_type": "llama"}', encoding="utf-8"
    )
    assert (
        main(
            [
                "--device",
                "cpu",
                "--size",
                "tiny",
                "--model",
                str(tmp_path / "model"),
                "--only",
                "offload",
            ]
        )
        == 1
    )
    assert capsys.readouterr().out.startswith("FAIL offload")
