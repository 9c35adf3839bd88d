"""A reward engine without a model: deterministic, instant, and able to fail on request. For tests and dry runs.

`spec.kwargs` scripts it:
    text           what every sample says (default: a digit derived from the prompt's tokens)
    texts          {substring of str(tokens joined by spaces): text}: the first entry found in the prompt wins over `text`
    value          what every sequence is worth (default: derived from its tokens, see `token_value`)
    delay_s        seconds each call takes
    die_on_call    number of the call (from 1, generate and classify together) at which the process exits at once, as when killed
    fail_on_call   number of the call that raises InfrastructureError
    fail_to_start  reason with which `start` raises EngineLoadError
    max_model_len  context length (default: the spec's, else 4096)
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from rmrl.errors import EngineLoadError, InfrastructureError
from rmrl.rewards.engines.base import (
    DEFAULT_MAX_MODEL_LEN,
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
    TextOutput,
    ValueOutput,
    overlong_texts,
    overlong_value,
)

EXIT_CODE = 17
"""Of a process that was told to die."""


def token_value(token_ids: Sequence[int]) -> float:
    """A number in [-1, 1) that depends on every token and its position: (sum of (i + 1) * token_i mod 1000) / 500 - 1."""
    return sum((i + 1) * token for i, token in enumerate(token_ids)) % 1000 / 500 - 1


class FakeEngine:
    """A `RewardEngine`; `calls` counts generate and classify, `log` names every method called."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.calls = 0
        self.log: list[str] = []
        self._script: dict[str, Any] = dict(spec.kwargs)
        self._state = "cold"
        self.context_length = int(self._script.get("max_model_len") or spec.max_model_len or DEFAULT_MAX_MODEL_LEN)

    def start(self) -> None:
        """Raises EngineLoadError when scripted to."""
        self.log.append("start")
        reason = self._script.get("fail_to_start")
        if reason:
            raise EngineLoadError(f"the engine of '{self.spec.path}' was told to fail at its start: {reason}")
        self._state = "awake"

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """Scripted texts, cut to max_tokens words; with `sampling.choice` the script falls back to the first choice."""
        self._begin("generate")
        return [self._texts(r) if len(r.token_ids) < self.context_length else overlong_texts(r, self.context_length) for r in requests]

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """Scripted or derived values."""
        self._begin("classify")
        return [self._value(r) if 0 < len(r.token_ids) <= self.context_length else overlong_value(r, self.context_length) for r in requests]

    def sleep(self, level: int = 1) -> None:
        """Calls fail until `wake`."""
        self.log.append(f"sleep {level}")
        self._state = f"asleep {level}"

    def wake(self) -> None:
        """Undo `sleep`."""
        self.log.append("wake")
        self._state = "awake"

    def resident_bytes(self) -> int:
        """1 GiB awake, half of it at level 1, nothing at level 2."""
        return {"awake": 2**30, "asleep 1": 2**29}.get(self._state, 0)

    def ping(self) -> str:
        """ "cold", "awake" or "asleep <level>"."""
        return self._state

    def _begin(self, method: str) -> None:
        self.log.append(method)
        self.calls += 1
        if self._state != "awake":
            raise InfrastructureError(f"the engine of '{self.spec.path}' is {self._state}; start or wake it first")
        time.sleep(float(self._script.get("delay_s", 0.0)))
        if self.calls == self._script.get("die_on_call"):
            os._exit(EXIT_CODE)
        if self.calls == self._script.get("fail_on_call"):
            raise InfrastructureError(f"the engine of '{self.spec.path}' was told to fail on call {self.calls}")

    def _texts(self, request: GenerateRequest) -> list[TextOutput]:
        words = self._text(request).split(" ")
        kept = words[: request.sampling.max_tokens]
        finish_reason = "stop" if len(kept) == len(words) else "length"
        return [TextOutput(" ".join(kept), finish_reason, len(request.token_ids), len(kept))] * request.sampling.n

    def _text(self, request: GenerateRequest) -> str:
        prompt = " ".join(map(str, request.token_ids))
        for part, text in self._script.get("texts", {}).items():
            if part in prompt:
                return str(text)
        if "text" in self._script:
            return str(self._script["text"])
        return request.sampling.choice[0] if request.sampling.choice else str(sum(request.token_ids) % 10)

    def _value(self, request: PoolingRequest) -> ValueOutput:
        value = self._script.get("value")
        return ValueOutput(token_value(request.token_ids) if value is None else float(value), len(request.token_ids))
