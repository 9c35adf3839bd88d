"""benchmarks/gpu_check on CPU: its verdicts, and every check that can run without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from packaging.version import Version

from benchmarks.gpu_check import family, jobs, lengths
from benchmarks.gpu_check.__main__ import line, main, run, verdict
from benchmarks.gpu_check.checks import CHECKS, DEADLINES
from benchmarks.gpu_check.rig import Failed, Numbers, Rig, Skip, apart, read, require
from benchmarks.gpu_check.training import as_near
from rmrl.inference.vllm import compat
from rmrl.models import varlen
from rmrl.types import Ragged
from tests.patience import PATIENCE_S, expires

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


PARENT = """
import os, subprocess, sys, time
middle = "import subprocess as s, sys; print(s.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], stdout=s.DEVNULL).pid)"
made = subprocess.run([sys.executable, "-c", middle], start_new_session=True, stdout=subprocess.PIPE)
with open(sys.argv[1] + ".partial", "w") as file:
    file.write(made.stdout.decode())
os.rename(sys.argv[1] + ".partial", sys.argv[1])
time.sleep(3600)
"""
"""Starts a grandchild in a session of its own, whose parent ends at once, and waits."""


def test_a_check_past_its_deadline_leaves_no_process(tmp_path: Path) -> None:
    """Also none that leads a session of its own and whose parent has ended, as a job's engines; and
    it ends no other process."""
    pid_file = tmp_path / "pid"
    environment = {**os.environ, family.MARK: "this-one"}
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(pid_file)], env=environment)
    try:
        until = time.monotonic() + PATIENCE_S
        while not pid_file.exists() and time.monotonic() < until:
            time.sleep(0.02)
        grandchild = int(pid_file.read_text())
        assert {each.pid for each in family.members("this-one")} == {process.pid, grandchild}
        family.end("this-one")
        process.wait(PATIENCE_S)
        assert not psutil.pid_exists(process.pid)
        assert family.members("this-one") == []
        assert not psutil.pid_exists(grandchild) or (
            psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
        )
        assert other.poll() is None
    finally:
        family.end("this-one")
        other.kill()
        other.wait(PATIENCE_S)


def test_a_command_past_its_deadline_has_no_status_and_ends(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        waits = [sys.executable, "-c", "import time; time.sleep(3600)"]
        fails = [sys.executable, "-c", "raise SystemExit(3)"]
        options: dict[str, Any] = {"cwd": tmp_path, "env": os.environ, "output": log}
        assert family.call(waits, expires(0.3), **options) is None
        assert family.call(fails, PATIENCE_S, **options) == 3


def test_a_check_past_its_deadline_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = run("critic", RIG, tmp_path, expires(0.3))
    assert answer["status"] == "FAIL"
    assert "no answer within 0 s" in answer["reason"]
    assert capsys.readouterr().out.startswith("FAIL critic")
    cut = run("critic", RIG, tmp_path, PATIENCE_S, left_s=expires(0.3))
    assert cut["status"] == "SKIP"
    assert cut["reason"] == "no time was left: no answer within 0 s"


def test_a_job_has_less_time_than_its_check() -> None:
    """Else the check is killed before it can say what the job printed."""
    assert set(DEADLINES) == set(CHECKS)
    with_jobs = [name for name, check in CHECKS.items() if check.__module__ == jobs.__name__]
    assert len(with_jobs) == 3
    assert all(DEADLINES[name] > jobs.LIMIT_S for name in with_jobs)


def test_what_a_release_lacks_is_skipped_and_not_checked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before 0.32 vLLM keeps its graphs either way: vllm_graphs_kept_sleep measures that."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    monkeypatch.setattr(compat, "installed_version", lambda: Version("0.28.0"))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    answer = verdict(CHECKS["vllm_graphs_sleep"], RIG)
    assert answer["status"] == "SKIP"
    assert answer["reason"] == "vLLM 0.28.0 keeps its graphs, 0.32 gives them back"


@pytest.mark.parametrize("lacks", [True, False])
def test_packing_is_checked_with_the_kernels_that_torch_has(
    lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flex attention comes last: it compiles for a minute and more, and the numbers of the others
    stand by then."""
    monkeypatch.setattr(varlen, "kernel_problem", lambda _: "this torch lacks it" if lacks else "")
    rig = Rig(model="m", folder="f", device="cuda", dtype="bfloat16", rows=4, longest=8)
    ways = list(lengths.ways(rig))
    assert ways[0] == "padded"
    assert ways[-1] == "flex"
    assert ("varlen" in ways) is not lacks
