"""The contract of a reward engine: its settings, its inputs and its outputs. Imports nothing
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
"""Ceiling of `max_model_len` where the user gives none, as the schema says."""

POLICY_ENGINE = "rmrl.inference.policy:PolicyEngine"
"""`EngineSpec.name` of the rollout engines as judges: their weights change from step to step."""

Runner = Literal["generate", "pooling", "token_pooling", "embed"]
"""generate: texts; pooling: raw logits of a sequence; token_pooling: raw logits at chosen tokens;
embed: one vector a text."""

FAILURES: tuple[Status, ...] = (
    "overlong",
    "timeout",
    "provider_error",
    "judge_refused",
    "worker_lost",
    "cancelled",
)
"""Possible values of an output's `failure`: the status of the score that it was computed for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(EngineSettings):
    """One engine. Rewards with equal `key` share it."""

    runner: Runner
    name: str
    """Entry of the table ENGINES."""
    pool: str = ""
    """Resource pool of the engine; "": it shares the policy's devices."""
    replicas: int | None = 1
    """Processes that hold the same model and share its requests; None: as many as its place has
    devices for on CUDA, one on CPU."""
    batch_invariant: bool = False
    """Every row is computed independently of what else is in its batch."""
    adapter: str = ""
    """Folder of the LoRA adapter that a reward's requests to it name; "": the model as it is."""
    adapters: tuple[str, ...] = ()
    """Adapters of all rewards that share it, which it has to serve."""

    @property
    def key(self) -> Hashable:
        """Equal for specs that one engine can serve, adapters aside; two spellings of one folder
        are equal."""
        path = os.path.realpath(self.path) if Path(self.path).exists() else self.path
        apart = ("path", "kwargs", "adapter", "adapters")
        names = [f.name for f in fields(self) if f.name not in apart]
        rest = [getattr(self, name) for name in names]
        return (path, *rest, json.dumps(dict(self.kwargs), sort_keys=True, default=repr))

    @property
    def by_policy(self) -> bool:
        """Whether the rollout engines answer, whose weights change from step to step."""
        return self.name == POLICY_ENGINE

    @property
    def shown_name(self) -> str:
        """The engine's name, for people."""
        return "policy" if self.by_policy else self.name

    @property
    def precision(self) -> str:
        """Description of the compute type, for people."""
        if self.batch_invariant:
            return f"{self.dtype} batch-invariant"
        return self.dtype

    def context_length(self) -> int:
        """`max_model_len`, resolved against the checkpoint; reads its config.json."""
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
    """(role, content) of each turn."""
    choice_tokens: tuple[int, ...] = ()
    """Token ids whose log-probabilities as the first generated token are returned."""
    adapter: str = ""
    """One of `EngineSpec.adapters`; "": the model as it is."""
    prefix: int = field(default=0, compare=False)
    """Requests with the same number, if it is not 0, begin with the same tokens: they stand side by
    side, and one replica serves them, so that its prefix cache does. No part of the cache's
    keys."""


@dataclass(frozen=True, slots=True)
class TextOutput:
    """One sample. `finish_reason` is "stop" or "length"; with a `failure` the text is "" and
    `detail` has the reason."""

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    choice_logprobs: tuple[float, ...] = ()
    """One per `choice_tokens`, up to a shared constant; -inf where the engine returns none."""
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """One sequence for a scoring engine."""

    token_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] | None = None
    """For BERT-like pair models: zeros, then ones; same length as `token_ids`."""
    positions: tuple[int, ...] = ()
    """token_pooling: positions of the tokens whose logits are returned."""
    adapter: str = ""
    """See GenerateRequest."""


@dataclass(frozen=True, slots=True)
class ValueOutput:
    """One raw logit; NaN with a `failure`."""

    value: float
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    extra: tuple[tuple[str, Any], ...] = ()
    """Further columns, of remote reward servers."""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class LabelOutput:
    """Raw logits of a sequence, one for each label of the head; () with a `failure`."""

    logits: tuple[float, ...]
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """Raw logits at the requested positions, shape `[positions][labels]`; () with a `failure`."""

    logits: tuple[tuple[float, ...], ...]
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class LogprobsRequest:
    """A text whose tokens from `start` on (at least 1) are to be rated, given all before them."""

    token_ids: tuple[int, ...]
    start: int
    adapter: str = ""
    """As in a GenerateRequest."""


@dataclass(frozen=True, slots=True)
class LogprobsOutput:
    """log p(token | tokens before it), the whole vocabulary at temperature 1, of each token from
    `start` on: float32 as little-endian bytes (`values`); empty with a `failure`."""

    logprobs: bytes
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False

    @classmethod
    def of(
        cls, logprobs: Sequence[float] | np.ndarray, tokens_in: int, *, cached: bool = False
    ) -> LogprobsOutput:
        """Build from numbers."""
        return cls(np.asarray(logprobs, dtype="<f4").tobytes(), tokens_in, cached=cached)

    def values(self) -> np.ndarray:
        """float32 [tokens], read-only."""
        return np.frombuffer(self.logprobs, dtype="<f4")


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """One text to embed."""

    text: str


@dataclass(frozen=True, slots=True)
class EmbedOutput:
    """One vector of length 1; () with a `failure`."""

    vector: tuple[float, ...]
    tokens_in: int
    failure: Status | Literal[""] = ""
    detail: str = ""
    cached: bool = False


class RewardEngine(Protocol):
    """Synchronous: it has a process of its own. Outputs stand in the order of the requests.

    `start` raises EngineLoadError or RewardError. The others raise InfrastructureError when the
    engine fails as a whole; an overlong request never does, it is marked in its own output.
    """

    def start(self) -> None: ...

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """`sampling.n` outputs for each request; requests may differ in their sampling."""
        ...

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """The raw logit of a head with one label; with another head each output is a failure."""
        ...

    def label_logits(self, requests: Sequence[PoolingRequest]) -> list[LabelOutput]:
        """The raw logits of a head with any number of labels."""
        ...

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]: ...

    def token_logprobs(self, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:
        """Runner generate. A text has to leave one place of the context free. A token that is not
        in the model's vocabulary is that request's failure."""
        ...

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]: ...

    def sleep(self, level: int = 1) -> None:
        """Free memory. 1: all but the weights, kept in host memory; 2: the weights as well."""
        ...

    def wake(self) -> None: ...

    def resident_bytes(self) -> int:
        """Resident memory of the process on CPU, device bytes of the process on CUDA."""
        ...

    def progress(self) -> int:
        """Return a number that has grown whenever requests have come a step further since the last
        time; read by another thread while a call runs."""
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
    """The output of a head with one label as a single value. Several are a failure: reading one of
    them would be a guess."""
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
    """Name both numbers, and the entry of a reward that cuts such inputs."""
    return (
        f"the input has {tokens} tokens and max_model_len is {context_length}"
        " (overlong=truncate_right of the reward would cut it)"
    )
