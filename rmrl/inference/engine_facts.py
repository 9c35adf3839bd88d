"""Facts in the class attributes that reward and rollout engines have. The driver reads them before
an engine is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.inference.reward_engines import ENGINES
from rmrl.inference.rollout import ROLLOUT_ENGINES
from rmrl.models.adapter_inspect import Adapter

EVERYWHERE = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """An engine's class attributes, with the defaults where its class does not state them."""

    runners: tuple[str, ...] = ("generate", "pooling", "token_pooling", "embed")
    """Model kinds that the engine runs, as in `EngineSpec.runner`."""
    sleeps_on: tuple[str, ...] = EVERYWHERE
    """Devices on which `sleep` is worth more than ending the process and starting it again."""
    reserves_gpu_share: bool = True
    """Reserves a share of the GPU and a KV cache. False: holds its weights and a batch."""
    batch_invariant_on: tuple[str, ...] = EVERYWHERE
    """Devices on which the engine can compute every row independently of the other rows in its
    batch."""
    batch_invariance: str = ""
    """What batch invariance needs, as the first half of a sentence."""
    loads_checkpoint: bool = False
    """`EngineSpec.path` always names a checkpoint, whose content decides the scores."""
    rated_at_once: Callable[[], int | None] = lambda: None
    """() -> tokens that `token_logprobs` holds whole logits for at the same time (CUDA). None: all
    in a text."""
    rates_tokens: bool = True
    """Has `token_logprobs`, for models that the engine runs as `generate`."""
    structured_output: bool = True
    """Restricts the text to `Sampling.choice`, `regex` or `json_schema`."""
    stated_bytes: Callable[[EngineSpec], tuple[int, int]] | None = None
    """(bytes awake, bytes asleep) for a spec. None: estimated from the checkpoint."""
    kept_asleep_bytes: Callable[[], int] = lambda: 0
    """() -> device memory that the installed engine keeps while it sleeps, beyond its process's own
    (CUDA)."""
    single_process: bool = False
    """Runs in one process on one device, without Ray."""
    adapter_problem: Callable[[Adapter, str], str] = lambda _, __: (
        "this engine runs no LoRA adapters; use engine.name=vllm or hf, or merge the adapter into"
        " its base"
    )
    """(adapter, runner) -> why the engine cannot run the adapter on a model of that kind. "": it
    can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """A rollout engine's class attributes, with the defaults where its class does not state
    them."""

    sleeps_on: tuple[str, ...] = EVERYWHERE
    """Devices on which `sleep` frees memory. On other devices the engine is never put to sleep."""
    reserves_gpu_share: bool = True
    """Reserves a share of the GPU and a KV cache. False: holds its weights and a batch."""
    batch_invariant_on: tuple[str, ...] = ()
    """Devices on which the engine can compute every sample independently of the other samples in
    its batch."""
    weight_transports: tuple[str, ...] = ("auto", "file")
    """Accepted values for rollout.weight_transport. Values other than auto and file need CUDA."""
    kept_asleep_bytes: Callable[[], int] = lambda: 0
    """() -> device memory that the installed engine keeps while it sleeps, beyond its process's own
    (CUDA)."""
    transport_problem: Callable[[str], str] = lambda _: ""
    """(rollout.weight_transport other than auto and file) -> what it needs and is not installed, ""
    if nothing."""
    answers: bool = False
    """Has `answer(requests)`: returns the same as a generating reward engine for GenerateRequests,
    from the present weights."""
    widens_head: Callable[[], bool] = lambda: False
    """() -> whether the installed engine can compute logits in float32."""
    ignores_overrides: bool = False
    """Does not apply model.override_config, so that it would not sample from the trained model."""
    derived_arguments: Callable[[Mapping[str, Any], str], dict[str, Any]] = lambda _, __: {}
    """(model.override_config, rollout.weight_transport) -> engine arguments that follow."""


Facts = TypeVar("Facts")


def engine_facts(name: str) -> EngineFacts:
    """Return the facts on reward engine `name`. Raises ConfigError for an unknown name."""
    return _facts(ENGINES[name], EngineFacts)


def rollout_facts(name: str) -> RolloutFacts:
    """Return the facts on rollout engine `name`. Raises ConfigError for an unknown name."""
    return _facts(ROLLOUT_ENGINES[name], RolloutFacts)


def _facts(engine: object, kind: Callable[..., Facts]) -> Facts:
    attributes: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if hasattr(engine, field.name):
            attributes[field.name] = getattr(engine, field.name)
    return kind(**attributes)
