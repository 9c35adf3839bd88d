"""Training backends: TrainBatch -> new weights. One engine object per process; engines know neither
rewards nor Ray."""

from __future__ import annotations

from collections.abc import Callable

from rmrl.registry import Registry
from rmrl.types import TrainEngine

TRAIN_ENGINES: Registry[Callable[..., TrainEngine]] = Registry(
    "actor_rollout_ref.actor.strategy",
    {
        "fake": "rmrl.backends.fake:FakeTrainEngine",
        "fsdp": "rmrl.backends.fsdp.engine:FSDPEngine",
        "fsdp2": "rmrl.backends.fsdp.engine:FSDPEngine",
        "megatron": "rmrl.backends.megatron.engine:MegatronEngine",
    },
)
