"""Start of a run, as far as it needs no process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmrl.config.schema import Config
from rmrl.rewards.residency import Budget, Residency, Room, plan_engines, sized
from rmrl.trainer.build_run import _compare_asleep, _load_resident
from rmrl.trainer.plan import rollout_asleep_bytes
from rmrl.trainer.rollouts import RolloutPool
from tests.patience import PATIENCE_S
from tests.rewards.residency.test_residency import engine, scalar
from tests.support.fake_processes import FakeHost
from tests.trainer.fake_run import rollout_engine

GIB = 2**30


def residency_of(residency: str, log: list[str]) -> tuple[Residency, Any]:
    """One engine that writes its start into `log`."""

    class Host(FakeHost):
        async def spawn(self, *args: Any, **kwargs: Any) -> Any:
            log.append("reward engine starts")
            return await super().spawn(*args, **kwargs)

    host = Host()
    spec = scalar(
        engine=engine("/a", kwargs={"awake_bytes": 10 * GIB, "away_bytes": GIB}),
        residency=residency,
    )
    plans = sized(plan_engines([spec]))
    made = Residency(lambda _: host, plans, budget=Budget({"": Room(40 * GIB, 20 * GIB)}))
    return made, plans


@pytest.mark.parametrize(
    ("residency", "expected"),
    [("resident", ["sleep", "reward engine starts"]), ("auto", [])],
)
async def test_resident_engines_start_while_rollouts_sleep(
    tiny_llama: Path, residency: str, expected: list[str]
) -> None:
    log: list[str] = []
    rewards, plans = residency_of(residency, log)
    process = rollout_engine()
    process.calls = log
    pool = RolloutPool([process], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]
    config = Config()
    config.actor_rollout_ref.model.path = str(tiny_llama)
    checked: Any = SimpleNamespace(engines=plans, config=config, device="cpu")
    collector: Any = SimpleNamespace(scorer=SimpleNamespace(residency=rewards), rollouts=pool)
    await _load_resident(checked, collector)
    assert log == expected


def test_rollouts_that_sleep_in_more_than_planned_leave_less_to_rewards(
    tiny_llama: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config()
    config.actor_rollout_ref.model.path = str(tiny_llama)
    planned = rollout_asleep_bytes(config, device="cuda")
    assert planned == 600 * 2**20
    rewards, _ = residency_of("auto", [])
    checked: Any = SimpleNamespace(config=config, device="cuda")
    _compare_asleep(checked, rewards, [planned - 1, planned])
    assert not caplog.messages
    assert rewards._budget.scoring("") == 40 * GIB
    _compare_asleep(checked, rewards, [planned, planned + 3 * GIB])
    assert "sleeping rollout engines hold 3.59 GiB" in caplog.messages[0]
    assert (rewards._budget.scoring(""), rewards._budget.idle("")) == (37 * GIB, 17 * GIB)
