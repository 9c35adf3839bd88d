"""benchmarks/gpu_check on CPU: its verdicts, and every check that can run without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.gpu_check.__main__ import line, main, verdict
from benchmarks.gpu_check.checks import CHECKS
from benchmarks.gpu_check.rig import Failed, Numbers, Rig, Skip, apart, read, require
from benchmarks.gpu_check.training import as_near
from rmrl.types import Ragged

RIG = Rig(model="m", folder="f", device="cpu", dtype="float32", rows=4, longest=8)


def rows(*values: float) -> Ragged:
    return Ragged.of([values], np.float32)


def test_a_rig_travels_by_file_and_its_batches_repeat(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 50}', encoding="utf-8")
    rig = Rig(**{**{name: getattr(RIG, name) for name in RIG.__slots__}, "model": str(tmp_path)})
    assert read(rig.write(tmp_path / "rig.json")) == rig
    first, again, other = rig.batch(), rig.batch(), rig.batch(seed=1)
    assert (first.tokens.values == again.tokens.values).all()
    assert first.tokens.lengths.tolist() != other.tokens.lengths.tolist()
    assert first.tokens.values.max() < 50
    assert (first.tokens.lengths > first.response_mask.lengths).all()


def test_verdicts() -> None:
    def passes(_: Rig) -> Numbers:
        return {"x": 1.0}

    def lacks(_: Rig) -> Numbers:
        raise Skip("no flux capacitor")

    def fails(_: Rig) -> Numbers:
        require(False, "too large", {"x": 2.0})
        return {}

    def breaks(_: Rig) -> Numbers:
        raise KeyError("gone")

    found: list[dict[str, Any]] = [verdict(check, RIG) for check in (passes, lacks, fails, breaks)]
    assert [f["status"] for f in found] == ["PASS", "SKIP", "FAIL", "FAIL"]
    assert [f["numbers"] for f in found] == [{"x": 1.0}, {}, {"x": 2.0}, {}]
    assert "KeyError: 'gone'" in found[3]["reason"]
    assert line("fails", found[2] | {"seconds": 3.4}) == "FAIL fails 3 s x=2 (too large)"


def test_near_the_truth_is_judged_by_what_the_dtype_allows() -> None:
    truth, plain = rows(0.0, 0.0), rows(0.02, -0.02)
    assert apart(rows(0.01, -0.03), truth)["mean"] == pytest.approx(0.02)
    as_near(rows(0.04, 0.04), plain, truth, "bfloat16")  # 0.04 <= 2 * 0.02 + 0.01
    with pytest.raises(Failed, match="off by"):
        as_near(rows(0.06, 0.06), plain, truth, "bfloat16")
    with pytest.raises(Failed, match="off by"):
        as_near(rows(0.002, 0.002), truth, truth, "float32")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_way_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "--device cpu" in capsys.readouterr().out


ON_CPU = [
    "wide_head", "update_memory", "packing_lengths", "shared_prompts", "offload_large",
    "export_large", "ipc_large", "driver_leaves", "megatron_step", "megatron_packing",
    "vllm_publish", "fsdp2_step", "logprobs", "packing", "offload", "lora", "critic",
    "megatron_checkpoint", "hf_publish",
]  # fmt: skip
"""Those that also run without a GPU: job_steps, vllm_turns, vllm_decode, vllm_sleep, killed_rollout
and others do too, and take minutes together; what they call has tests of its own."""
SKIPPED = [
    "vllm_graphs_kept_sleep", "vllm_invariant_judge", "vllm_invariant_scalar", "offload_policy",
    "megatron_offload", "nvml_memory",
]  # fmt: skip


def test_the_checks_named_here_are_there() -> None:
    assert {*ON_CPU, *SKIPPED} <= set(CHECKS)


def test_what_has_passed_is_not_repeated_and_time_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check needs 20 s at least, so none of them begins within 6 s."""
    out = tmp_path / "found.json"
    command = ["--device", "cpu", "--size", "tiny", "--dtype", "float32", "--out", str(out)]
    assert main([*command, "--minutes", "0.1", "--only", "critic"]) == 0
    assert "1 SKIP" in capsys.readouterr().out
    assert not out.exists()
    about = {"device": "cpu", "gpu": "", "model": "random, tiny", "dtype": "float32"}
    passed = {"status": "PASS", "reason": "", "numbers": {"x": 1.0}, "seconds": 1.0}
    out.write_text(json.dumps({**about, "checks": {"critic": passed}}), encoding="utf-8")
    assert main([*command, "--only", "critic"]) == 0
    printed = capsys.readouterr().out
    assert "critic has passed before" in printed
    assert "1 PASS" in printed
    other = [*command[:5], "bfloat16", *command[6:]]
    assert main([*other, "--minutes", "0.1", "--only", "critic"]) == 0
    assert "1 SKIP" in capsys.readouterr().out
