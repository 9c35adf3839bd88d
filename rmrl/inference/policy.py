"""The policy as an engine of rewards: the rollout engines, with the weights that they have at the
moment, answer what other generating engines answer.

Nothing is started for it. `rmrl.trainer.policy_host` makes the requests reach the rollout engines;
what stands here is what the plan of memory and the checks read.
"""

from __future__ import annotations

from typing import ClassVar

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import EngineSpec


class PolicyEngine:
    """Facts of the rollout engines in this part. `EngineSpec.kwargs` has `awake_bytes`: what they
    hold awake beyond what they hold asleep, on each of their devices."""

    runners: ClassVar[tuple[str, ...]] = ("generate",)

    def __init__(self, spec: EngineSpec) -> None:
        raise ConfigError(
            f"reward.engine.name={spec.name}: the policy judges with its rollout engines; write"
            " path=policy, without an engine"
        )

    @staticmethod
    def stated_bytes(spec: EngineSpec) -> tuple[int, int]:
        """(awake, asleep), beyond the rollout engines' own sleep, which the plan has as theirs."""
        return int(spec.kwargs.get("awake_bytes", 0)), 0
