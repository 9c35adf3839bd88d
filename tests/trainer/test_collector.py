"""The lock on the policy's devices while rewards are scored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.scoring.scorer import Scorer
from tests.trainer.fake_run import fake_run, train_and_close


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
