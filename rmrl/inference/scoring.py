"""Engines that run model rewards: token ids or text in, texts, raw logits or vectors out.

An engine lives in a process of its own and is shared by all rewards whose `EngineSpec.key` is
equal. `ENGINES[name]` is a class whose constructor takes one `EngineSpec`.
"""

from __future__ import annotations

from collections.abc import Callable

from rmrl.inference.scoring_base import EngineSpec, RewardEngine
from rmrl.registry import Registry

ENGINES: Registry[Callable[[EngineSpec], RewardEngine]] = Registry(
    "reward.engine.name",
    {
        "vllm": "rmrl.inference.vllm.scoring:VLLMEngine",
        "hf": "rmrl.inference.hf.scoring:HFEngine",
        "sentence_transformers": (
            "rmrl.inference.hf.sentence_transformers:SentenceTransformersEngine"
        ),
        "sglang": "rmrl.inference.sglang.scoring:SGLangEngine",
        "fake": "rmrl.inference.fake.scoring:FakeEngine",
    },
)


def build_engine(spec: EngineSpec) -> RewardEngine:
    """Build the engine named by `spec.name`; called inside the engine's own process."""
    return ENGINES[spec.name](spec)
