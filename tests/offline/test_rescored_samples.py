"""samples.jsonl of a training run, scored again: the numbers that training had, whatever order the
rows are in."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.residency import Residency
from rmrl.rewards.session.scorer import Scorer
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench

BY_GROUP = {"kind": "standardize", "by": "group"}
RANK = {"kind": "rank"}
RUNNING = {"kind": "standardize", "by": "running"}


def trained(folder: Path, transform: dict[str, Any]) -> list[dict[str, Any]]:
    """Six steps of four prompts out of eight: each prompt is sampled at several steps."""
    from tests.trainer import fake_run  # imports torch

    parts = fake_run.FakeParts()
    run = fake_run.fake_run(folder, total_steps=6, parts=parts, data__train_max_samples=8)
    spec = dataclasses.replace(fake_run.rule(folder), transforms=(transform,))
    residency = Residency(lambda _: parts.host, [])
    run.collector.scorer = Scorer(
        [spec],
        run.config.reward,
        residency=residency,
        tokenizer=lambda _: fake_run.Characters(),
        rule_workers=1,
    )
    asyncio.run(fake_run.train_and_close(run))
    return fake_run.records(run.out_dir / "samples.jsonl")


def rescored(
    bench: Bench, samples: list[dict[str, Any]], transform: dict[str, Any], *settings: str
) -> list[dict[str, Any]]:
    from tests.trainer.fake_run import PARITY  # imports torch

    data, out = bench.folder / "samples.jsonl", bench.folder / "scored.jsonl"
    write_lines(data, samples)
    (bench.folder / "functions" / "parity.py").write_text(PARITY)
    entries = ", ".join(f"{key}: {value}" for key, value in transform.items())
    keys = (
        "reward.models=[parity]",
        f"reward.transforms.parity={{{entries}}}",
        "overwrite=true",
        *settings,
    )
    bench.score(bench.checked(f"data.files={data}", f"out={out}", *keys))
    return read_lines(out)


@pytest.mark.parametrize("transform", [BY_GROUP, RANK])
@pytest.mark.parametrize("shuffled", [False, True])
def test_the_rewards_of_training_to_the_last_bit(
    bench: Bench, tmp_path: Path, transform: dict[str, Any], shuffled: bool
) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    samples = trained(folder, transform)
    steps_of_prompts = {(sample["prompt_id"], sample["step"]) for sample in samples}
    assert len(steps_of_prompts) > len({prompt for prompt, _ in steps_of_prompts})
    if shuffled:
        random.Random(3).shuffle(samples)
    rows = rescored(bench, samples, transform)
    assert [row["response"] for row in rows] == [sample["response"] for sample in samples]
    assert [row["reward"] for row in rows] == [sample["reward"] for sample in samples]
    assert len({sample["reward"] for sample in samples}) > 5


def test_running_statistics_follow_the_steps(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    samples = trained(folder, RUNNING)
    rows = rescored(
        bench, samples, RUNNING, "data.batch_size=16"
    )  # a step of 4 prompts with 4 responses each
    assert [row["reward"] for row in rows] == [sample["reward"] for sample in samples]
