"""Engines that run model rewards: token ids or text in, texts, raw logits or vectors out.

An engine lives in a process of its own and is shared by all rewards whose `EngineSpec.key` is
equal. `ENGINES[name]` is a class whose constructor takes one `EngineSpec`.
"""

from __future__ import annotations

from collections.abc import Callable

from rmrl.registry import Registry
from rmrl.rewards.engines.base import EngineSpec, RewardEngine

ENGINES: Registry[Callable[[EngineSpec], RewardEngine]] = Registry(
    "reward.engine.name",
    {
        "vllm": "rmrl.rewards.engines.vllm:VLLMEngine",
        "hf": "rmrl.rewards.engines.hf:HFEngine",
        "sentence_transformers": (
            "rmrl.rewards.engines.sentence_transformers:SentenceTransformersEngine"
        ),
        "sglang": "rmrl.rewards.engines.sglang:SGLangEngine",
        "fake": "rmrl.rewards.engines.fake:FakeEngine",
    },
)


def build_engine(spec: EngineSpec) -> RewardEngine:
    """The engine that `spec.name` asks for; called inside the engine's own process."""
    return ENGINES[spec.name](spec)
