"""Prompts -> samples. `ROLLOUT_ENGINES[name]` is a class whose constructor takes
`RolloutEngineSettings`."""

from __future__ import annotations

from collections.abc import Callable

from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.interfaces import RolloutEngine
from rmrl.registry import Registry

ROLLOUT_ENGINES: Registry[Callable[[RolloutEngineSettings], RolloutEngine]] = Registry(
    "actor_rollout_ref.rollout.name",
    {
        "vllm": "rmrl.inference.vllm.rollout:VLLMRollout",
        "sglang": "rmrl.inference.sglang.rollout:SGLangRollout",
        "hf": "rmrl.inference.hf.rollout:HFRollout",
    },
)


def build_engine(name: str, settings: RolloutEngineSettings) -> RolloutEngine:
    """Build the engine called `name`. Called inside the engine's own process."""
    return ROLLOUT_ENGINES[name](settings)
