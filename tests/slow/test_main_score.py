"""Jobs of `python -m rmrl.main_score` with engines in processes: failures and signals leave a
clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.inputs import read_lines
from tests.rewards.parts import checkpoint
from tests.support import fakes
from tests.test_main_score import REPOSITORY, arguments, tmp
from tests.trainer.job import descendants, still_running, wait_for

__all__ = ["tmp"]

LIMIT_S = 600.0


def start(tmp: Path, changed: dict[str, str]) -> subprocess.Popen[str]:
    """In a process group of its own, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "rmrl.main_score", *arguments(tmp, changed)],
        cwd=REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def fake_judge(tmp: Path, **script: Any) -> dict[str, str]:
    folder = tmp / "scalar"
    if not folder.exists():
        checkpoint(folder, head=True)
    tokenizer = tmp / "scalar" / "tokenizer.json"
    if not tokenizer.exists():
        from tests.engine_models import write_tokenizer

        write_tokenizer(folder)
    kwargs = ",".join(f"{key}:{value}" for key, value in {"value": 0.5, **script}.items())
    return {
        "reward.models": "[quality]",
        "reward.specs.quality.path": str(folder),
        "reward.engine.name": fakes.REWARD_ENGINE,
        "reward.engine.kwargs": f"{{{kwargs}}}",
        "data.batch_size": "1",
    }


@pytest.mark.fresh
def test_engines_live_in_processes_that_end_with_the_job(tmp: Path) -> None:
    job = start(tmp, {**fake_judge(tmp), "out": "{tmp}/engines.jsonl"})
    seen: set[psutil.Process] = set()

    def ended() -> bool:
        seen.update(descendants(job.pid))
        return job.poll() is not None

    wait_for(ended, what="the job's end")
    printed, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, printed[-3000:]
    assert [row["score_quality"] for row in read_lines(tmp / "engines.jsonl")] == [0.5] * 4
    assert len(seen) > 2
    assert still_running(list(seen)) == []


def test_an_engine_that_fails_half_way(tmp: Path) -> None:
    # Every process dies on its first call, so the one that takes the place of the first dies as
    # well.
    job = start(tmp, {**fake_judge(tmp, die_on_call=1), "out": "{tmp}/died.jsonl"})
    printed, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 4, printed[-3000:]
    assert "EngineLostError" in printed
    assert "nothing was written" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_what_was_scored_and_no_engine(tmp: Path, number: signal.Signals) -> None:
    out = f"stopped-{number.name}.jsonl"
    job = start(tmp, {**fake_judge(tmp, delay_s=10.0), "out": f"{{tmp}}/{out}"})
    parts = tmp / f"{out}.parts"
    wait_for(
        lambda: (parts / "manifest.json").exists() or job.poll() is not None, what="the first part"
    )
    family = descendants(job.pid)
    if number == signal.SIGINT:
        os.killpg(job.pid, number)
    else:
        os.kill(job.pid, number)
    printed, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 130, printed[-3000:]
    assert (
        f"of 4 rows are scored and kept in {parts}; the same command goes on from there" in printed
    )
    assert f"[rmrl] interrupted by {number.name}" in printed
    assert "Traceback" not in printed
    done = json.loads((parts / "manifest.json").read_text())["parts"][-1]["rows_done"]
    assert 1 <= done < 4
    assert still_running(family) == []
