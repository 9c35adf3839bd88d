"""Locks, clocks and the engines' sleep around the scoring of a batch."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.session.session import Session
from rmrl.trainer.rollouts import RolloutPool
from tests.trainer.fake_run import fake_run, records, train_and_close


@pytest.mark.parametrize("on_policy_devices", [True, False])
def test_the_devices_are_locked_while_a_reward_model_there_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_policy_devices: bool
) -> None:
    locked: list[bool] = []
    run = fake_run(tmp_path, total_steps=1)
    run.collector.scores_on_policy_devices = on_policy_devices
    finish = Scorer.finish

    async def recorded(self: Scorer, *batch: Any, **settings: Any) -> Any:
        locked.append(run.collector.locks.devices.locked())
        return await finish(self, *batch, **settings)

    monkeypatch.setattr(Scorer, "finish", recorded)
    asyncio.run(train_and_close(run))
    assert locked == [on_policy_devices]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [2]),  # new weights follow
        ({"algorithm__filter_groups__enable": True}, [1]),  # or another round of sampling
        ({"algorithm__adv_estimator": "remax"}, [1, 2]),  # greedy responses are sampled as well
        ({"trainer__test_freq": 1, "data__val_files": "val.parquet"}, [2, 1]),  # then validation
    ],
)
def test_engines_keep_weights_that_they_sample_from_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    expected: list[int],
) -> None:
    calls: list[str] = []
    sleep = RolloutPool.sleep
    finish = Scorer.finish

    async def sleeping(self: RolloutPool, *, level: int = 1) -> None:
        calls.append(f"sleep {level}")
        await sleep(self, level=level)

    async def scoring(self: Scorer, *batch: Any, **settings: Any) -> Any:
        calls.append("score")
        return await finish(self, *batch, **settings)

    monkeypatch.setattr(RolloutPool, "sleep", sleeping)
    monkeypatch.setattr(Scorer, "finish", scoring)
    if "data__val_files" in settings:
        settings = settings | {"data__val_files": str(tmp_path / "val.parquet")}
        settings |= {"trainer__val_before_train": False}
    asyncio.run(train_and_close(fake_run(tmp_path, total_steps=1, **settings)))
    before = [calls[i - 1] for i, each in enumerate(calls) if each == "score"]
    assert before == [f"sleep {level}" for level in expected]


def test_sampling_and_scoring_have_clocks_of_their_own(tmp_path: Path) -> None:
    run = fake_run(tmp_path, total_steps=2)
    asyncio.run(train_and_close(run))
    for line in records(run.out_dir / "metrics.jsonl"):
        assert line["time/generate_s"] > 0
        assert line["time/score_s"] > 0


def test_rows_carry_the_step_that_they_train_and_none_in_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[tuple[bool, int | None]] = []
    add = Session.add

    def adding(self: Session, position: int, row: ResponseRow) -> None:
        rows.append((row.prompt.id.startswith("val"), row.step))
        add(self, position, row)

    monkeypatch.setattr(Session, "add", adding)
    files = {"data__val_files": str(tmp_path / "val.parquet"), "trainer__val_before_train": False}
    remax = {"algorithm__adv_estimator": "remax", "trainer__test_freq": 2}
    asyncio.run(train_and_close(fake_run(tmp_path, total_steps=2, **files, **remax)))
    # 4 prompts with 4 responses and a greedy one each in both steps, then 6 prompts of validation
    assert rows == [(False, 0)] * 20 + [(False, 1)] * 20 + [(True, None)] * 6
