"""Prompts -> samples. `ROLLOUT_ENGINES[name]` is a class whose constructor takes
`RolloutEngineSettings`."""

from __future__ import annotations

from collections.abc import Callable

from rmrl.registry import Registry
from rmrl.rollout.base import RolloutEngineSettings
from rmrl.types import RolloutEngine

ROLLOUT_ENGINES: Registry[Callable[[RolloutEngineSettings], RolloutEngine]] = Registry(
    "actor_rollout_ref.rollout.name",
    {
        "vllm": "rmrl.rollout.vllm:VLLMRollout",
        "sglang": "rmrl.rollout.sglang:SGLangRollout",
        "hf": "rmrl.rollout.hf:HFRollout",
        "fake": "rmrl.rollout.fake:FakeRollout",
    },
)


def build_engine(name: str, settings: RolloutEngineSettings) -> RolloutEngine:
    """The engine called `name`; called inside the engine's own process."""
    return ROLLOUT_ENGINES[name](settings)
