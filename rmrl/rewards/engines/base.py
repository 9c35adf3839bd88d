"""The contract of a reward engine: what it is asked to be, what goes in, what comes out. Imports nothing heavy."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from rmrl.models.checkpoint_inspect import max_positions
from rmrl.types import Sampling

DEFAULT_MAX_MODEL_LEN = 4096
"""Ceiling of `max_model_len` where the user gives none, as the schema says."""

OVERLONG = "overlong"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One engine. Rewards with equal `key` share it. Defaults of the settings live in the configuration schema."""

    path: str
    """Checkpoint folder or hub id."""
    runner: Literal["generate", "pooling"]
    """generate: texts; pooling: one raw scalar."""
    name: str
    """Entry of the table ENGINES."""
    dtype: str
    max_model_len: int | None
    """None: what the checkpoint allows, at most 4096."""
    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    gpu_memory_utilization: float
    kv_cache_bytes: int
    device: Literal["cpu", "cuda"]
    threads: int
    trust_remote_code: bool = False
    seed: int = 0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the engine as they are."""

    @property
    def key(self) -> Hashable:
        """Equal for specs that one engine can serve; two spellings of one folder are equal."""
        path = os.path.realpath(self.path) if os.path.exists(self.path) else self.path  # noqa: PTH110 (a string either way)
        rest = tuple(getattr(self, f.name) for f in fields(self) if f.name not in ("path", "kwargs"))
        return (path, *rest, json.dumps(dict(self.kwargs), sort_keys=True, default=repr))

    def context_length(self) -> int:
        """`max_model_len`, resolved against the checkpoint; reads its config.json."""
        allowed = max_positions(self.path)
        return min(allowed, self.max_model_len or DEFAULT_MAX_MODEL_LEN)


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One prompt for a generating engine."""

    token_ids: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class TextOutput:
    """One sample. `finish_reason` is "stop", "length", or "overlong": the prompt does not fit, text "" and nothing was run."""

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """One sequence for a scoring engine."""

    token_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None = None
    """For BERT-like pair models: zeros, then ones; same length as `token_ids`."""


@dataclass(frozen=True, slots=True)
class ValueOutput:
    """One raw logit. Where `error` is "overlong" the value is NaN and nothing was run."""

    value: float
    tokens_in: int
    error: str = ""


class RewardEngine(Protocol):
    """Synchronous: it has a process of its own. Outputs stand in the order of the requests.

    `start` raises EngineLoadError or RewardError. The others raise InfrastructureError when the engine fails as a whole;
    an overlong request never does, it is marked in its own output.
    """

    def start(self) -> None: ...

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """`sampling.n` outputs for each request; requests may differ in their sampling."""
        ...

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]: ...

    def sleep(self, level: int = 1) -> None:
        """1: free what can be recomputed, keep weights in host memory; 2: drop the weights too."""
        ...

    def wake(self) -> None: ...

    def resident_bytes(self) -> int:
        """Resident memory of the process on CPU, device bytes of the process on CUDA."""
        ...

    def ping(self) -> str:
        """A word on the state, such as "awake"; answers within milliseconds."""
        ...


def overlong_texts(request: GenerateRequest) -> list[TextOutput]:
    """The marks of a prompt that leaves no room for a single token."""
    return [TextOutput("", OVERLONG, len(request.token_ids), 0)] * request.sampling.n


def overlong_value(request: PoolingRequest) -> ValueOutput:
    """The mark of a sequence that does not fit."""
    return ValueOutput(math.nan, len(request.token_ids), OVERLONG)
