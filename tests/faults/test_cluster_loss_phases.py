"""The cluster is lost in each phase of a step: what is saved is a finished step, and a resumed run
is the one that was never cut."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmrl.cluster.watch import ClusterWatch, Listener, watching
from rmrl.errors import ClusterLostError
from rmrl.trainer.run import Run
from tests.faults.test_resume import RUNS, assert_same, go
from tests.patience import PATIENCE_S, expires
from tests.trainer.fake_run import fake_run, train_and_close

PHASES = {
    # who is at work when it happens -> the step that is saved; it happens at the third call, which
    # is that of step 3
    "collector.collect": 2,
    "models.actor.logprobs": 2,
    "models.actor.update": 3,
    "publisher.publish": 2,  # the first one is before step 1
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmrl.telemetry.curve.draw_curves", lambda *_: False)
    monkeypatch.setattr(ClusterWatch, "start", lambda _: None)


class LosesTheCluster:
    """Calls through; the cluster is lost at the beginning of the third call, when earlier
    checkpoints are complete; the call takes `lasts_s` from then on."""

    def __init__(self, method: Any, watch: ClusterWatch, run: Run, lasts_s: float) -> None:
        self.method, self.watch, self.run, self.lasts_s = method, watch, run, lasts_s
        self.calls = 0

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            await self.run.saves.settle()
            self.watch.lose(self.watch.listeners[0], self.watch.clock())
            await asyncio.sleep(self.lasts_s)
        return await self.method(*args, **kwargs)


def lost_in(
    folder: Path,
    phase: str,
    *,
    steps: int,
    patience_s: float = 10 * PATIENCE_S,
    lasts_s: float = 0.05,
    **changed: Any,
) -> str:
    """Train until the cluster is lost in that phase; the error's sentence."""
    folder.mkdir()
    run = fake_run(folder, total_steps=steps, **changed)
    *path, name = phase.split(".")
    owner: Any = run
    for part in path:
        owner = getattr(owner, part)
    watch = ClusterWatch(
        listeners=[Listener(name="the head", host="10.0.0.1", port=1)], patience_s=patience_s
    )
    loses = LosesTheCluster(getattr(owner, name), watch, run, lasts_s)
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(owner, "__dict__"):
            patch.setattr(owner, name, loses)
        else:  # it has slots
            patch.setattr(type(owner), name, lambda _, *args, **kwargs: loses(*args, **kwargs))
        with watching(watch), pytest.raises(ClusterLostError) as caught:
            asyncio.run(train_and_close(run))
    return str(caught.value)


@pytest.mark.parametrize("settings", ["grpo", "kl-epochs-shuffle", "critic"])
@pytest.mark.parametrize(("phase", "step"), PHASES.items())
def test_a_finished_step_is_saved_and_goes_on_bit_by_bit(
    tmp_path: Path, phase: str, step: int, settings: str
) -> None:
    changed = RUNS[settings]
    if phase == "models.actor.logprobs" and settings != "kl-epochs-shuffle":
        pytest.skip("one update on fresh samples measures its log-probabilities itself")
    if settings == "critic" and phase == "models.actor.update":
        step = 5  # the first two steps train the critic alone
    sentence = lost_in(tmp_path / "cut", phase, steps=6, **changed)
    out = tmp_path / "cut" / "run"
    saved = out / "checkpoints" / f"step_{step:06d}"
    assert (
        sentence
        == "the head at 10.0.0.1:1 is gone, which ends Ray for this run; the last checkpoint is"
        f" {saved}, and the same command goes on from it"
    )
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    (tmp_path / "cut" / "train.parquet").unlink()
    assert_same(go(tmp_path / "cut", 6, **changed), go(tmp_path / "whole", 6, **changed), step=6)


def test_an_update_that_does_not_end_in_time_is_not_saved(tmp_path: Path) -> None:
    never_ends = {"patience_s": expires(0.02), "lasts_s": 600.0}
    sentence = lost_in(
        tmp_path / "cut", "models.actor.update", steps=6, **never_ends, trainer__save_freq=1
    )
    newest = tmp_path / "cut" / "run" / "checkpoints" / "step_000002"
    assert f"the last checkpoint is {newest}, and the same command goes on from it" in sentence
    assert sorted(path.name for path in newest.parent.iterdir())[-1] == "step_000002"


def test_in_the_middle_of_an_update_without_any_checkpoint_the_sentence_says_so(
    tmp_path: Path,
) -> None:
    never_ends = {"patience_s": expires(0.02), "lasts_s": 600.0}
    sentence = lost_in(
        tmp_path / "cut", "models.actor.update", steps=6, **never_ends, trainer__save_freq=-1
    )
    assert sentence.endswith(
        "it was in the middle of the update of step 3, so nothing was saved; "
        "there is no checkpoint, the same command starts from the beginning"
    )
    assert not (tmp_path / "cut" / "run" / "checkpoints").exists()
