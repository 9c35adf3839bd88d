"""When a run validates, with which sampling, and that its numbers are those of the samples it
wrote."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.rewards.calibration.corrected import corrected_share
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms.probability_map import Curve, ProbabilityMap, Verdicts
from rmrl.telemetry import at_k
from rmrl.trainer.collector import Collector
from rmrl.types import Prompt, Sampling
from tests.trainer.fake_run import fake_run, records, train_and_close

WITH_ANSWERS = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    tokens = [int(word) for word in solution_str.split()]
    if tokens[0] % 7 == 0:
        return None
    return {"score": sum(token % 2 for token in tokens) / len(tokens), "pred": tokens[0] % 3}
"""
SAMPLED = {
    "actor_rollout_ref__rollout__val_kwargs__n": 4,
    "actor_rollout_ref__rollout__val_kwargs__do_sample": True,
    "actor_rollout_ref__rollout__val_kwargs__temperature": 0.6,
    "actor_rollout_ref__rollout__val_kwargs__top_p": 0.9,
}


def go(folder: Path, steps: int, **changed: Any) -> Path:
    """Trains to `steps` with 6 validation prompts; returns the output folder."""
    folder.mkdir(exist_ok=True)
    run = fake_run(
        folder, total_steps=steps, data__val_files=str(folder / "val.parquet"), **changed
    )
    asyncio.run(train_and_close(run))
    return run.out_dir


def validated(out: Path) -> dict[int, dict[str, float]]:
    """Step -> its validation metrics."""
    lines = {
        line["step"]: {k: v for k, v in line.items() if k.startswith("val/")}
        for line in records(out / "metrics.jsonl")
    }
    return {step: metrics for step, metrics in lines.items() if metrics}


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ({"trainer__test_freq": 2}, [0, 2, 4, 5]),
        ({"trainer__test_freq": 2, "trainer__val_before_train": False}, [2, 4, 5]),
        ({}, [0]),
        ({"trainer__val_before_train": False}, []),
        (
            {
                "trainer__val_only": True,
                "trainer__val_before_train": False,
                "trainer__test_freq": 1,
            },
            [0],
        ),
    ],
)
def test_when_it_validates(tmp_path: Path, changed: dict[str, Any], steps: list[int]) -> None:
    out = go(tmp_path, 5, **changed)
    assert list(validated(out)) == steps
    assert (out / "checkpoints").exists() != bool(changed.get("trainer__val_only"))


def test_the_sampling_of_val_kwargs_and_only_for_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, Sampling]] = []
    sample_and_score = Collector.sample_and_score

    async def recorded(
        self: Collector, stage: str, prompts: Sequence[Prompt], sampling: Sampling, **more: Any
    ) -> Any:
        asked.append((stage, len(prompts), sampling))
        return await sample_and_score(self, stage, prompts, sampling, **more)

    monkeypatch.setattr(Collector, "sample_and_score", recorded)
    go(tmp_path, 1, data__val_batch_size=4, **SAMPLED)
    of_validation = [
        (count, s.n, s.temperature, s.top_p, s.seed)
        for stage, count, s in asked
        if stage == "validate"
    ]
    assert of_validation == [(4, 4, 0.6, 0.9, 1), (2, 4, 0.6, 0.9, 1)]
    assert [s.temperature for stage, _, s in asked if stage != "validate"] == [1.0]


def test_the_numbers_are_those_of_the_samples_written(tmp_path: Path) -> None:
    out = go(tmp_path, 2, trainer__test_freq=2, code=WITH_ANSWERS, **SAMPLED)
    rows = [row for row in records(out / "val_samples.jsonl") if row["step"] == 2]
    assert len(rows) == 6 * 4
    groups = [rows[start : start + 4] for start in range(0, 24, 4)]
    assert all(len({row["prompt_id"] for row in group}) == 1 for group in groups)
    verdicts = [[row for row in group if row["reward"] is not None] for group in groups]
    assert {len(group) for group in verdicts} > {4}, "some are missing, not all"
    found = validated(out)[2]
    values = [np.asarray([row["reward"] for row in group]) for group in verdicts]
    assert found["val/reward"] == pytest.approx(np.concatenate(values).mean())
    assert found["val/reward/mean@4"] == pytest.approx(
        np.mean([v.mean() for v in values if len(v)])
    )
    assert found["val/reward/best@4/mean"] == pytest.approx(
        np.mean([v.max() for v in values if len(v) == 4])
    )
    assert found["val/reward/worst@4/mean"] == pytest.approx(
        np.mean([v.min() for v in values if len(v) == 4])
    )
    assert found["val/reward/best@4/left_out"] == pytest.approx(
        np.mean([len(v) < 4 for v in values])
    )
    answers = [
        [str(row["scores"]["parity"]["extra"]["pred"]) for row in group] for group in verdicts
    ]
    voted = [
        at_k.majority_at_k(a, v, 2) for a, v in zip(answers, values, strict=True) if len(v) >= 2
    ]
    assert (
        found["val/reward/maj@2/mean"]
        == found["val/parity/maj@2/mean"]
        == pytest.approx(np.mean(voted))
    )
    # prompts take turns between two sources
    of_numbers = [at_k.best_at_k(v, 2)[0] for v in values[0::2] if len(v) >= 2]
    assert found["val/numbers/reward/best@2/mean"] == pytest.approx(np.mean(of_numbers))


def test_validating_changes_nothing_else_and_repeats(tmp_path: Path) -> None:
    first = go(tmp_path / "first", 3, trainer__test_freq=1, **SAMPLED)
    again = go(tmp_path / "again", 3, trainer__test_freq=1, **SAMPLED)
    never = go(tmp_path / "never", 3, trainer__val_before_train=False)
    assert validated(first) == validated(again)
    assert records(first / "samples.jsonl") == records(never / "samples.jsonl")
    last = Path("checkpoints") / "step_000003" / "policy" / "toy.safetensors"
    assert (first / last).read_bytes() == (never / last).read_bytes()


class RunningStatistics(Scorer):
    """A scorer whose rewards are standardized by all scores so far."""

    def __init__(self, specs: Sequence[RewardSpec], *settings: Any, **more: Any) -> None:
        entry = {"kind": "standardize", "by": "running"}
        specs = [dataclasses.replace(spec, transforms=(entry,)) for spec in specs]
        super().__init__(specs, *settings, **more)


def test_running_statistics_learn_from_training_alone(tmp_path: Path) -> None:
    out = go(tmp_path, 2, trainer__test_freq=1, scorer=RunningStatistics)
    state = json.loads((out / "checkpoints" / "step_000002" / "trainer.json").read_text())
    # Two steps of 4 prompts with 4 responses; each of the 3 validations adds 6 rows.
    assert state["rewards"]["parity"]["0:standardize"]["count"] == 2 * 4 * 4


CURVE = Curve(method="isotonic", points=((0.0, 0.1), (1.0, 0.9)))


def test_a_calibrated_reward_has_its_corrected_share_in_validation(tmp_path: Path) -> None:
    calibration = ProbabilityMap(
        curve=CURVE,
        reward="parity",
        kind="rule",
        digest={},
        threshold=0.5,
        folds=(CURVE,),
        verdicts=Verdicts(good=100, good_accepted=90, bad=100, bad_accepted=20),
    )
    file = tmp_path / "parity.json"
    file.write_text(json.dumps(calibration.to_json()))

    class CalibratedScorer(Scorer):
        def __init__(self, specs: Sequence[RewardSpec], *settings: Any, **more: Any) -> None:
            entry = {"kind": "calibrated", "file": str(file)}
            changed = [dataclasses.replace(spec, transforms=(entry,)) for spec in specs]
            super().__init__(changed, *settings, **more)

    out = go(tmp_path, 1, scorer=CalibratedScorer)
    (metrics,) = validated(out).values()
    rows = [row for row in records(out / "val_samples.jsonl") if row["step"] == 0]
    scores = np.asarray([row["scores"]["parity"]["score"] for row in rows])
    accepted = int((0.1 + 0.8 * scores >= 0.5).sum())
    expected = corrected_share(accepted, len(rows), calibration.verdicts)
    assert metrics["val/parity/corrected"] == pytest.approx(expected.value)
    assert metrics["val/parity/corrected_low"] == pytest.approx(expected.low)
    assert metrics["val/reward"] == pytest.approx((0.1 + 0.8 * scores).mean())
