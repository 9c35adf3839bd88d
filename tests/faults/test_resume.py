"""A run that was cut short and goes on is the run that was not: same numbers, same samples, same
weights bit by bit.

With fakes here (real loop, loader, scorer, checkpoints and logs); with real engines in
test_resume_job.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rmrl.errors import CheckpointError, Interrupted
from rmrl.signals import stopping_after_step
from rmrl.trainer.loop import train
from tests.trainer.fake_run import FakeParts, fake_run, records, train_and_close, without_clocks

RUNS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "kl-epochs-shuffle": {
        "algorithm__use_kl_in_reward": True,
        "algorithm__kl_ctrl__type": "adaptive",
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
        "actor_rollout_ref__actor__ppo_epochs": 2,
        "actor_rollout_ref__actor__shuffle": True,
    },
    "critic": {"algorithm__adv_estimator": "gae", "trainer__critic_warmup": 2},
    "baseline": {"algorithm__adv_estimator": "remax"},
    "redrawn": {
        "algorithm__use_pf_ppo": True,
        "algorithm__rollout_correction__rollout_is": "token",
    },
    "refilled": {
        "algorithm__filter_groups__enable": True,
        "algorithm__filter_groups__max_num_gen_batches": 3,
    },
}
TEARS: dict[str, Callable[[bytes], bytes | None]] = {
    "truncated": lambda content: content[:-2],
    "flipped": lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
    "deleted": lambda content: None,
}


@pytest.fixture(autouse=True)
def _no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four fifths of a fake run's time is drawing curves.png, which nothing here looks at."""
    monkeypatch.setattr("rmrl.telemetry.curve.draw_curves", lambda *_: False)


def go(folder: Path, steps: int, parts: FakeParts | None = None, **changed: Any) -> Path:
    """Trains to `steps` and returns the output folder."""
    folder.mkdir(exist_ok=True)
    run = fake_run(folder, total_steps=steps, parts=parts, **changed)
    asyncio.run(train_and_close(run))
    return run.out_dir


def assert_same(cut: Path, whole: Path, *, step: int) -> None:
    """Metrics without clocks, samples, and every bit of the last checkpoint (its manifest holds the
    time)."""
    assert without_clocks(records(cut / "metrics.jsonl")) == without_clocks(
        records(whole / "metrics.jsonl")
    )
    assert records(cut / "samples.jsonl") == records(whole / "samples.jsonl")
    assert_same_checkpoint(cut, whole, step=step)


def assert_same_checkpoint(cut: Path, whole: Path, *, step: int) -> None:
    """Every bit of the checkpoints of this step."""
    cut, whole = (out / "checkpoints" / f"step_{step:06d}" for out in (cut, whole))
    names = {
        path.relative_to(whole)
        for path in whole.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert names == {
        path.relative_to(cut)
        for path in cut.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert [name for name in sorted(names) if not same_content(cut / name, whole / name)] == []


def same_content(cut: Path, whole: Path) -> bool:
    """Tensors bit by bit, by name: their order in a file is the writer's business; other files byte
    by byte."""
    if cut.suffix != ".safetensors":
        return cut.read_bytes() == whole.read_bytes()
    left, right = bits(cut), bits(whole)
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name]) for name in left
    )


def bits(file: Path) -> dict[str, np.ndarray]:
    return {
        name: tensor.contiguous().view(-1).view(torch.uint8).numpy()
        for name, tensor in load_file(file).items()
    }


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_cut_after_any_step_it_ends_as_if_never_cut(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    whole = go(tmp_path / "whole", 6, **settings)
    pieces = tmp_path / "pieces"
    for steps in (
        1,
        3,
        5,
        6,
    ):  # 16 prompts in batches of 4: within the first epoch, and across its end
        out = go(pieces, steps, **settings)
    assert_same(out, whole, step=6)


def test_the_critic_is_kept_too(tmp_path: Path) -> None:
    out = go(tmp_path, 1, **RUNS["critic"])
    kept = {path.name for path in (out / "checkpoints" / "step_000001").iterdir()}
    assert kept == {"manifest.json", "trainer.json", "policy", "critic", "hf"}


def test_a_checkpoint_is_loaded_while_training_has_the_devices(tmp_path: Path) -> None:
    """Where training starts offloaded, what is loaded has no place before it is brought back."""
    go(tmp_path, 1, **RUNS["critic"])
    parts = FakeParts()
    run = fake_run(tmp_path, total_steps=2, parts=parts, **RUNS["critic"])
    run.models.actor.group._offloads = True

    async def resume() -> None:
        await run.resume()
        await run.close()

    asyncio.run(resume())
    assert parts.workers[0].calls == ["onload", "actor.load", "critic.load", "offload"]
    assert parts.engines[0].calls == ["sleep"]


def test_batches_sampled_ahead_are_not_lost(tmp_path: Path) -> None:
    """They are sampled again, from newer weights, so numbers may differ; every prompt is trained
    once, in the same order."""
    ahead = {"trainer__max_staleness": 1}
    whole = go(tmp_path / "whole", 6, **ahead)
    for steps in (1, 3, 6):
        out = go(tmp_path / "pieces", steps, **ahead)
    ours, theirs = (
        [(row["step"], row["prompt_id"]) for row in records(folder / "samples.jsonl")]
        for folder in (out, whole)
    )
    assert ours == theirs
    assert len(set(ours[: 16 * 4])) == 16  # the 16 prompts of the first epoch, 4 responses each


@pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS)
def test_whichever_file_is_torn_the_run_goes_on_from_the_checkpoint_before(
    tmp_path: Path, tear: Callable[[bytes], bytes | None], caplog: pytest.LogCaptureFixture
) -> None:
    out = go(tmp_path, 4, trainer__save_freq=2, **RUNS["critic"])
    newest = out / "checkpoints" / "step_000004"
    files = sorted(path for path in newest.rglob("*") if path.is_file())
    assert {"manifest.json", "trainer.json"} < {path.name for path in files}
    for path in files:
        before = path.read_bytes()
        torn = tear(before)
        path.unlink() if torn is None else path.write_bytes(torn)
        parts = FakeParts()
        run = fake_run(tmp_path, total_steps=6, parts=parts, **RUNS["critic"])

        async def resume(run: Any = run) -> None:
            await run.resume()
            await run.close()

        caplog.clear()
        asyncio.run(resume())
        assert run.step == 2, path
        skipped, resumed = caplog.messages
        assert path.name in skipped
        assert "step_000004 cannot be used" in skipped
        assert resumed.startswith("resuming from")
        assert "step_000002 (step 2 of 6)" in resumed
        path.write_bytes(before)


def test_after_a_torn_checkpoint_it_ends_as_if_never_cut(tmp_path: Path) -> None:
    whole = go(tmp_path / "whole", 6)
    out = go(tmp_path / "torn", 4, trainer__save_freq=2)
    weights = out / "checkpoints" / "step_000004" / "policy" / "toy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert_same(go(tmp_path / "torn", 6), whole, step=6)


def test_nothing_but_torn_checkpoints_is_an_error_and_the_logs_stay(tmp_path: Path) -> None:
    out = go(tmp_path, 2)
    (out / "checkpoints" / "step_000002" / "trainer.json").unlink()
    before = (out / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="no complete checkpoint is left"):
        go(tmp_path, 4)
    assert (out / "metrics.jsonl").read_bytes() == before


def test_resume_path_to_a_torn_checkpoint_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    out = go(tmp_path, 2)
    newest = out / "checkpoints" / "step_000002"
    (newest / "trainer.json").write_text("{}")
    resumed = {"trainer__resume_mode": "resume_path", "trainer__resume_from_path": str(newest)}
    with pytest.raises(
        CheckpointError,
        match=r"step_000002 cannot be used: its file trainer\.json has 2 bytes where",
    ):
        go(tmp_path, 4, trainer__default_local_dir=str(tmp_path / "other"), **resumed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_the_rest_is_as_if_never_cut(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "cut").mkdir()
    run = fake_run(tmp_path / "cut", total_steps=6)

    async def cut() -> None:
        asyncio.get_running_loop().call_later(0.0, os.kill, os.getpid(), number)
        try:
            with stopping_after_step(run):
                await train(run)
        finally:
            await run.close()

    with pytest.raises(Interrupted, match="of 6; the same command goes on from there"):
        asyncio.run(cut())
    state = json.loads((run.saves.root / f"step_{run.step:06d}" / "trainer.json").read_text())
    assert state["step"] == run.step < 6
    assert_same(go(tmp_path / "cut", 6), go(tmp_path / "whole", 6), step=6)
