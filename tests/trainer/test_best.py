"""The checkpoint of the best validation stays, and a run may end some validations after it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import Config
from rmrl.rewards.specs.spec import RewardSpec, Watch
from rmrl.trainer.best import Best, best_problems, stopped_early
from rmrl.trainer.check_place import finished_step
from rmrl.trainer.run import Run
from tests.trainer.fake_run import fake_run, records, rule, small_config, train_and_close


def gold(folder: Path) -> RewardSpec:
    """A watcher: the share of even tokens, which the policy unlearns."""
    code = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    tokens = [int(word) for word in solution_str.split()]
    return sum(token % 2 == 0 for token in tokens) / len(tokens)
"""
    spec = rule(folder, name="gold", code=code)
    return dataclasses.replace(spec, weight=0.0, watch=Watch(validation=True))


def scripted(monkeypatch: pytest.MonkeyPatch, values: dict[int, float]) -> None:
    """Validations give these values of val/gold by step."""

    async def evaluate(run: Run) -> dict[str, float]:
        metrics = {"val/gold": values[run.step]}
        return metrics | run.best.observe(run.step, metrics)

    monkeypatch.setattr(Run, "_evaluate", evaluate)


def go(folder: Path, steps: int, **changed: Any) -> Path:
    settings: dict[str, Any] = {
        "data__val_files": str(folder / "val.parquet"),
        "trainer__test_freq": 1,
        "trainer__save_freq": -1,
        "trainer__best_by": "val/gold",
        **changed,
    }
    run = fake_run(folder, total_steps=steps, watchers=[gold(folder)], **settings)
    asyncio.run(train_and_close(run))
    return run.out_dir


def kept(out: Path) -> tuple[list[str], str]:
    """The checkpoints, and the one that `best` names ("": no such link)."""
    root = out / "checkpoints"
    names = sorted(path.name for path in root.iterdir() if path.name.startswith("step_"))
    link = root / "best"
    return names, link.resolve().name if link.is_symlink() else ""


SCRIPT = {0: 0.1, 1: 0.5, 2: 0.8, 3: 0.8, 4: 0.7, 5: 0.9, 6: 0.2, 7: 0.1, 8: 0.0}


def test_the_best_stays_beside_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SCRIPT)
    out = go(tmp_path, 4)
    # a tie is no gain; without save_freq the last one and the best one are all there is
    assert kept(out) == (["step_000002", "step_000004"], "step_000002")
    lines = records(out / "metrics.jsonl")
    assert [line["best/step"] for line in lines] == [0, 1, 2, 2, 2]
    assert [line["best/val/gold"] for line in lines] == [0.1, 0.5, 0.8, 0.8, 0.8]
    # going on, with another number to keep
    go(tmp_path, 8, trainer__save_freq=1, trainer__max_actor_ckpt_to_keep=2)
    assert kept(out) == (["step_000005", "step_000007", "step_000008"], "step_000005")


def test_a_resumed_run_knows_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SCRIPT)
    out = go(tmp_path, 3)
    (out / "checkpoints" / "best").unlink()  # killed before it was there
    go(tmp_path, 4)
    assert kept(out) == (["step_000002", "step_000004"], "step_000002")
    state = json.loads((out / "checkpoints" / "step_000004" / "trainer.json").read_text())
    assert state["best"] == {"by": "val/gold", "step": 2, "value": 0.8, "without_gain": 2}


def test_a_run_from_the_checkpoint_of_another_finds_its_own_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, SCRIPT)
    out = go(tmp_path, 3)
    newest = {"trainer__resume_from_path": str(out / "checkpoints" / "step_000003")}
    other = tmp_path / "other"
    settings = {"trainer__resume_mode": "resume_path", **newest}
    out = go(tmp_path, 6, trainer__default_local_dir=str(other), **settings)
    # steps 4, 5 and 6 give .7, .9 and .2; .8 was of the other run
    assert kept(out) == (["step_000005", "step_000006"], "step_000005")
    assert [line["best/step"] for line in records(out / "metrics.jsonl")] == [4, 5, 5]


def test_a_disk_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(link: Path, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    scripted(monkeypatch, SCRIPT)
    monkeypatch.setattr(Path, "symlink_to", refused)
    out = go(tmp_path, 4)
    assert kept(out) == (["step_000002", "step_000004"], "")
    assert "step_000002; there can be no link to it: [Errno 1] Operation not permitted" in (
        caplog.text
    )


def test_a_run_ends_early_and_stays_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, SCRIPT)
    out = go(tmp_path, 8, trainer__early_stop=2)
    assert kept(out) == (["step_000002", "step_000004"], "step_000002")
    assert [line["step"] for line in records(out / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    before = (out / "metrics.jsonl").read_bytes()
    go(tmp_path, 8, trainer__early_stop=2)
    assert (out / "metrics.jsonl").read_bytes() == before

    config = small_config(tmp_path, trainer__best_by="val/gold", trainer__early_stop=2)
    assert finished_step(config, out, total_steps=8) == 4
    config.trainer.early_stop = 3
    assert finished_step(config, out, total_steps=8) is None
    out = go(tmp_path, 8, trainer__early_stop=3)  # step 5 is better than 2: 6, 7 and 8 are not
    assert kept(out) == (["step_000005", "step_000008"], "step_000005")


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_watcher_that_falls_ends_the_run(tmp_path: Path, ahead: int) -> None:
    out = go(tmp_path, 40, trainer__early_stop=3, trainer__max_staleness=ahead)
    lines = records(out / "metrics.jsonl")
    best = int(lines[-1]["best/step"])
    values = {line["step"]: line["val/gold"] for line in lines}
    assert values[best] == max(values.values())
    assert list(values)[-1] == best + 3 < 40
    names, linked = kept(out)
    assert names[-1] == f"step_{best + 3:06d}"
    assert linked == (f"step_{best:06d}" if best else "")


def test_what_was_not_measured_is_no_validation(caplog: pytest.LogCaptureFixture) -> None:
    best = Best(by="val/gold", early_stop=1)
    assert best.observe(0, {"val/reward": 1.0, "policy/loss": 0.0}) == {}
    assert (best.step, best.without_gain) == (-1, 0)
    assert "val/gold was not measured; measured: val/reward" in caplog.text
    assert best.observe(1, {"val/gold": -3.0}) == {"best/step": 1.0, "best/val/gold": -3.0}
    assert not best.stops
    best.observe(2, {"val/gold": -3.0})
    assert best.stops


def test_another_metric_begins_anew() -> None:
    best = Best(by="val/gold")
    best.observe(3, {"val/gold": 0.5})
    other = Best(by="val/reward")
    other.load_state_dict(best.state_dict())
    assert other.step == -1
    assert not stopped_early(Config(), Path("nowhere"))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"trainer__early_stop": 3}, "trainer.best_by=val/reward is measured by validations"),
        ({"trainer__best_by": "val/gold"}, "there are none: give trainer.test_freq=20"),
        ({"trainer__best_by": "reward", "trainer__test_freq": 5}, "did you mean 'val/reward'"),
        ({"trainer__best_by": "val/glod", "trainer__test_freq": 5}, "did you mean 'val/gold'"),
    ],
)
def test_settings_that_find_no_best(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    (sentence,) = best_problems(small_config(tmp_path, **changed), ["parity", "gold"])
    assert problem in sentence


@pytest.mark.parametrize("by", ["val/gold", "val/reward", "val/sums/gold/best@4/mean", None])
def test_metrics_of_validations(tmp_path: Path, by: str | None) -> None:
    config = small_config(tmp_path, trainer__best_by=by, trainer__test_freq=5)
    assert not list(best_problems(config, ["parity", "gold"]))
