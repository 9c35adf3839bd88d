"""The contract for a reward engine: its settings, its inputs and its outputs. Imports nothing
heavy."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from rmrl.inference.settings import EngineSettings
from rmrl.models.checkpoint_inspect import max_positions
from rmrl.types import Sampling, Status

DEFAULT_MAX_MODEL_LEN = 4096
"""Ceiling for `max_model_len` where the user gives none, as the schema says."""

POLICY_ENGINE = "rmrl.inference.policy:PolicyEngine"
"""`EngineSpec.name` of the rollout engines as judges. Their weights change from step to step."""

Runner = Literal["generate", "pooling", "token_pooling", "embed"]
"""generate: texts. pooling: raw logits for a sequence. token_pooling: raw logits at chosen tokens.
embed: one vector per text."""

FAILURES: tuple[Status, ...] = (
    "overlong",
    "timeout",
    "provider_error",
    "judge_refused",
    "worker_lost",
    "cancelled",
)
"""Possible values for an output's `failure`, which becomes the score's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(EngineSettings):
    """One engine. Rewards with equal `key` share it."""

    runner: Runner
    name: str
    """Entry in the table ENGINES."""
    pool: str = ""
    """The engine's resource pool. "": the engine shares the policy's devices."""
    replicas: int | None = 1
    """Processes that hold the same model and share its requests. None: on CUDA as many as the
    engine's place has devices for, on CPU one."""
    batch_invariant: bool = False
    """Every row is computed independently of the other rows in its batch."""
    adapter: str = ""
    """Folder of the LoRA adapter that a reward's requests name. "": the model as it is."""
    adapters: tuple[str, ...] = ()
    """Adapters that the engine has to serve, from all rewards that share it."""

    @property
    def key(self) -> Hashable:
        """Return the key. Two specs with the same key share one engine. Adapters do not count. One
        folder spelled in two ways gives the same key."""
        path = os.path.realpath(self.path) if Path(self.path).exists() else self.path
        apart = ("path", "kwargs", "adapter", "adapters")
        names = [f.name for f in fields(self) if f.name not in apart]
        rest = [getattr(self, name) for name in names]
        return (path, *rest, json.dumps(dict(self.kwargs), sort_keys=True, default=repr))

    @property
    def by_policy(self) -> bool:
        """Return whether the rollout engines answer, whose weights change from step to step."""
        return self.name == POLICY_ENGINE

    @property
    def shown_name(self) -> str:
        """Return the engine's name, for people."""
        return "policy" if self.by_policy else self.name

    @property
    def precision(self) -> str:
        """Describe the compute type, for people."""
        if self.batch_invariant:
            return f"{self.dtype} batch-invariant"
        return self.dtype

    def context_length(self) -> int:
        """Return `max_model_len`, resolved against the checkpoint. Reads the checkpoint's
        config.json."""
        allowed = max_positions(self.path)
        return min(allowed, self.max_model_len or DEFAULT_MAX_MODEL_LEN)


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One prompt for a generating engine. Engines that tokenize by themselves (HTTP) read
    `messages` if there are any, else `text`."""

    token_ids: tuple[int, ...]
    sampling: Sampling
    text: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    """(role, content) for each turn."""
    choice_tokens: tuple[int, ...] = ()
    """Token ids whose log-probabilities as the first generated token are returned."""
    adapter: str = ""
    """An adapter in `EngineSpec.adapters`. "": the model as it is."""
    prefix: int = field(default=0, compare=False)
    """Requests with the same number, if it is not 0, begin with the same tokens. They stand side by
    side, and one replica serves them, so that its prefix cache holds the common tokens. The cache's
    keys do not contain the number."""


@dataclass(frozen=True, slots=True)
class TextOutput:
    """One sample. `finish_reason` is "stop" or "length". With a `failure` the text is "" and
    `detail` has the reason."""

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    choice_logprobs: tuple[float, ...] = ()
    """One per `choice_tokens`, over the whole vocabulary. -inf where the engine returns none."""
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """One sequence for a scoring engine."""

    token_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None = None
    """For BERT-like pair models: zeros, then ones. Same length as `token_ids`."""
    positions: tuple[int, ...] = ()
    """token_pooling: positions of the tokens whose logits are returned."""
    adapter: str = ""
    """An adapter, as in a GenerateRequest."""


@dataclass(frozen=True, slots=True)
class ValueOutput:
    """One raw logit. NaN with a `failure`."""

    value: float
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    extra: tuple[tuple[str, Any], ...] = ()
    """Further columns, from remote reward servers."""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class LabelOutput:
    """A sequence's raw logits, one for each label in the head. () with a `failure`."""

    logits: tuple[float, ...]
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """Raw logits at the requested positions, shape `[positions][labels]`. () with a `failure`."""

    logits: tuple[tuple[float, ...], ...]
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class LogprobsRequest:
    """A text whose tokens from `start` on (at least 1) are to be rated, given all tokens before
    them."""

    token_ids: tuple[int, ...]
    start: int
    adapter: str = ""
    """As in a GenerateRequest."""


@dataclass(frozen=True, slots=True)
class LogprobsOutput:
    """log p(token | tokens before it) for each token from `start` on, over the whole vocabulary at
    temperature 1. `values` has the numbers as float32, stored as little-endian bytes. Empty with a
    `failure`."""

    logprobs: bytes
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False

    @classmethod
    def of(
        cls, logprobs: Sequence[float] | np.ndarray, tokens_in: int, *, cached: bool = False
    ) -> LogprobsOutput:
        """Build the output from numbers."""
        return cls(np.asarray(logprobs, dtype="<f4").tobytes(), tokens_in, cached=cached)

    def values(self) -> np.ndarray:
        """Return float32 [tokens], read-only."""
        return np.frombuffer(self.logprobs, dtype="<f4")


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """One text to embed."""

    text: str


@dataclass(frozen=True, slots=True)
class EmbedOutput:
    """One vector with length 1. () with a `failure`."""

    vector: tuple[float, ...]
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


class RewardEngine(Protocol):
    """Runs synchronously in its own process. Outputs stand in the requests' order.

    `start` raises EngineLoadError or RewardError. The others raise InfrastructureError when the
    engine fails as a whole. An overlong request never raises: its own output marks it.
    """

    def start(self) -> None: ...

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """Return `sampling.n` outputs for each request. Requests may differ in their sampling."""
        ...

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """Return the raw logit from a head with one label. With another head each output is a
        failure."""
        ...

    def label_logits(self, requests: Sequence[PoolingRequest]) -> list[LabelOutput]:
        """Return the raw logits from a head, however many labels it has."""
        ...

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]: ...

    def token_logprobs(self, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:
        """Return each token's log-probability, for runner generate. A text must leave one place in
        the context free. A token that is not in the model's vocabulary is that request's
        failure."""
        ...

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]: ...

    def sleep(self, level: int = 1) -> None:
        """Free memory. 1: all but the weights, which are kept in host memory. 2: the weights as
        well."""
        ...

    def wake(self) -> None: ...

    def resident_bytes(self) -> int:
        """Return the process's resident memory on CPU, its device bytes on CUDA."""
        ...

    def progress(self) -> int:
        """Return a number that has grown whenever requests have come a step further since the last
        time. Another thread reads the number while a call runs."""
        ...

    def ping(self) -> str:
        """Return the state in a word, such as "awake", within milliseconds."""
        ...


def overlong_texts(request: GenerateRequest, context_length: int) -> list[TextOutput]:
    """Mark a prompt that leaves no room for a single token, once per sample."""
    tokens = len(request.token_ids)
    detail = overlong_detail(tokens, context_length)
    output = TextOutput("", "", tokens, 0, failure="overlong", detail=detail)
    return [output] * request.sampling.n


def overlong_labels(request: PoolingRequest, context_length: int) -> LabelOutput:
    """Mark a sequence that does not fit."""
    detail = overlong_detail(len(request.token_ids), context_length)
    return LabelOutput((), len(request.token_ids), failure="overlong", detail=detail)


def only_label(output: LabelOutput) -> ValueOutput:
    """Return the output from a head with one label as a single value. Several labels are a failure:
    reading one would be a guess."""
    failure = output.failure
    detail = output.detail
    if not failure and len(output.logits) != 1:
        failure = "provider_error"
        text = json.dumps(output.logits)[:80]
        detail = (
            f"the engine gave {text} for a sequence ({len(output.logits)} values); one finite"
            " number is needed: is this a head with one label?"
        )
    value = math.nan if failure else output.logits[0]
    return ValueOutput(value, output.tokens_in, failure=failure, detail=detail)


def overlong_detail(tokens: int, context_length: int) -> str:
    """Name both numbers, and the reward's entry that cuts such inputs."""
    return (
        f"the input has {tokens} tokens and max_model_len is {context_length}"
        " (overlong=truncate_right of the reward would cut it)"
    )
