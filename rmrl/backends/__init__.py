"""Training backends: TrainBatch -> new weights. One engine object per process; engines know neither
rewards nor Ray. Importing this package, and looking a name up, imports neither torch nor megatron.
"""

from __future__ import annotations

from collections.abc import Callable

from rmrl.backends.descriptor import Backend, described_backend
from rmrl.interfaces import TrainEngine
from rmrl.registry import Registry

TRAIN_ENGINES: Registry[Backend | Callable[..., TrainEngine]] = Registry(
    "actor_rollout_ref.actor.strategy",
    {
        "fsdp": "rmrl.backends.fsdp.backend:FSDP",
        "fsdp2": "rmrl.backends.fsdp.backend:FSDP",
        "megatron": "rmrl.backends.megatron.backend:MEGATRON",
    },
)


def backend_of(strategy: str) -> Backend:
    """The backend descriptor for `strategy`. Raises ConfigError for an unknown name, ImportError or
    AttributeError as importing a user's own does."""
    return described_backend(TRAIN_ENGINES[strategy])
