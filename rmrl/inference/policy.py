"""The policy as a reward engine: the rollout engines answer like other generating engines, with the
weights that they have at the moment.

Nothing is started for the policy. `rmrl.trainer.policy_host` makes the requests reach the rollout
engines. The memory plan and the checks read this module.
"""

from __future__ import annotations

from typing import ClassVar

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import EngineSpec


class PolicyEngine:
    """Facts about the rollout engines as a reward engine. `EngineSpec.kwargs` has `awake_bytes`:
    the bytes that they hold awake beyond those held asleep, on each device."""

    runners: ClassVar[tuple[str, ...]] = ("generate",)

    def __init__(self, spec: EngineSpec) -> None:
        raise ConfigError(
            f"reward.engine.name={spec.name}: the policy judges with its rollout engines; write"
            " path=policy, without an engine"
        )

    @staticmethod
    def stated_bytes(spec: EngineSpec) -> tuple[int, int]:
        """Return (awake, asleep), beyond the rollout engines' own sleep, which the plan counts as
        theirs."""
        return int(spec.kwargs.get("awake_bytes", 0)), 0
