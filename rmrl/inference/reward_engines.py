"""Engines that run model rewards: token ids or text in, texts, raw logits or vectors out.

An engine lives in its own process. All rewards with equal `EngineSpec.key` share it.
`ENGINES[name]` is a class whose constructor takes one `EngineSpec`.
"""

from __future__ import annotations

from collections.abc import Callable

from rmrl.inference.reward_engine_base import EngineSpec, RewardEngine
from rmrl.registry import Registry

ENGINES: Registry[Callable[[EngineSpec], RewardEngine]] = Registry(
    "reward.engine.name",
    {
        "vllm": "rmrl.inference.vllm.reward_engine:VLLMEngine",
        "hf": "rmrl.inference.hf.reward_engine:HFEngine",
        "sentence_transformers": (
            "rmrl.inference.hf.sentence_transformers:SentenceTransformersEngine"
        ),
        "sglang": "rmrl.inference.sglang.reward_engine:SGLangEngine",
    },
)


def build_engine(spec: EngineSpec) -> RewardEngine:
    """Build the engine named by `spec.name`. Called inside the engine's own process."""
    return ENGINES[spec.name](spec)
