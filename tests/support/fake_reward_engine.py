"""A reward engine without a model: deterministic, instant, and able to fail on request.

Entries in `spec.kwargs`; "the prompt" is the request's tokens joined by spaces, and any text in it:
    text             text of every sample (default: a digit derived from the prompt's tokens)
    texts            {substring of the prompt's tokens: text}: the first entry in the prompt takes
      precedence over `text`
    cut              true, or a list of substrings of the prompt: its samples end with finish_reason
      "length"
    value            value of every sequence, and of every requested token (default: derived from
      its tokens, see `token_value`)
    labels           number of labels of `label_logits` and `token_logits` (default 1); label k has
      the value times (1, -1, 1, ...)
    choice_logprobs  {token id: log-probability} of `choice_tokens` (default: derived from the
      prompt, their probabilities add up to 1)
    token_logprobs   {token id: log-probability} of `token_logprobs` (default: derived from the
      token before it, the probabilities of the ids below `vocabulary` add up to 1)
    vocabulary       number of token ids of `token_logprobs` (default 262144)
    failures         {substring of the prompt: status}: the first entry in the prompt fails the
      request with that status
    delay_s          seconds each call takes
    die_on_call      number of the call (from 1, all scoring methods together) at which the process
      exits at once, as when killed
    fail_on_call     number of the call that raises InfrastructureError
    fail_to_start    reason with which `start` raises EngineLoadError
    awake_bytes, away_bytes    planned bytes awake and asleep
    measured_away_bytes    bytes that it reports asleep (default: the planned ones)
    adapters         {name of an adapter's folder: {text, texts, value or choice_logprobs}}: entries
      that replace those above for requests with this adapter
    max_model_len    context length (default: the spec's, else 4096). A text has as many tokens as
      words
"""

from __future__ import annotations

import hashlib
import itertools
import math
import operator
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.errors import ConfigError, EngineLoadError, InfrastructureError
from rmrl.inference.fitting import overlong_logits, overlong_vector, rateable, unrateable
from rmrl.inference.reward_engine_base import (
    DEFAULT_MAX_MODEL_LEN,
    FAILURES,
    EmbedOutput,
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    LabelOutput,
    LogprobsOutput,
    LogprobsRequest,
    PoolingRequest,
    TextOutput,
    TokenOutput,
    ValueOutput,
    only_label,
    overlong_labels,
    overlong_texts,
)

EXIT_CODE = 17
"""Exit code of a process whose script has die_on_call."""


def token_value(token_ids: Sequence[int]) -> float:
    """Return a number in [-1, 1) that depends on every token and its position: (sum of (i + 1) *
    token_i mod 1000) / 500 - 1."""
    total = sum(number * token for number, token in enumerate(token_ids, start=1))
    return total % 1000 / 500 - 1


def word_vector(text: str) -> tuple[float, ...]:
    """Return 32 numbers of length 1: the text's words' mean direction, whatever their order and
    case; texts that share words are similar."""
    words = text.lower().split() or [""]
    digests = [hashlib.sha256(word.encode()).digest() for word in words]
    means = [sum(column) / len(words) - 127.5 for column in zip(*digests, strict=True)]
    length = math.sqrt(sum(map(operator.mul, means, means)))
    return tuple(x / length for x in means)


class FakeEngine:
    """A `RewardEngine`; `calls` counts the scoring calls, `log` names every method called. Raises
    ConfigError for an unknown status."""

    @staticmethod
    def adapter_problem(adapter: object, runner: str) -> str:
        """Return "": every adapter is taken, and none is read."""
        return ""

    @staticmethod
    def stated_bytes(spec: EngineSpec) -> tuple[int, int]:
        """Return the kwargs `awake_bytes` and `away_bytes`, 0 where they are not set."""
        return int(spec.kwargs.get("awake_bytes", 0)), int(spec.kwargs.get("away_bytes", 0))

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.calls = 0
        self.log: list[str] = []
        self._script: dict[str, Any] = dict(spec.kwargs)
        self._failures = {
            str(part): status for part, status in self._script.get("failures", {}).items()
        }
        unknown = sorted(set(self._failures.values()) - set(FAILURES))
        if unknown:
            raise ConfigError(
                f"kwargs.failures of a fake engine has {', '.join(unknown)}; an engine's output can"
                f" fail with {', '.join(FAILURES)}"
            )
        self._state = "cold"
        self.context_length = int(
            self._script.get("max_model_len") or spec.max_model_len or DEFAULT_MAX_MODEL_LEN
        )

    def start(self) -> None:
        """Raise EngineLoadError when scripted to."""
        self.log.append("start")
        reason = self._script.get("fail_to_start")
        if reason:
            raise EngineLoadError(
                f"the engine of '{self.spec.path}' was scripted to fail at its start: {reason}"
            )
        self._state = "awake"

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """Return the scripted texts, cut to max_tokens words. With `sampling.choice` the script
        falls back to the first choice."""
        self._begin("generate")
        outputs: list[list[TextOutput]] = []
        for request in requests:
            count = len(request.token_ids)
            if count >= self.context_length:
                outputs.append(overlong_texts(request, self.context_length))
                continue
            texts = [content for _, content in request.messages]
            prompt = [_joined(request.token_ids), request.text, *texts]
            failure = self._failure(prompt)
            if failure:
                outputs.append([TextOutput("", "", count, 0, **failure)] * request.sampling.n)
                continue
            words = self._text(request).split(" ")
            written = words[: request.sampling.max_tokens]
            finish_reason = "stop"
            cut = self._script.get("cut", False)
            if not isinstance(cut, bool):
                cut = any(part in text for text, part in itertools.product(prompt, cut))
            if len(written) < len(words) or cut:
                finish_reason = "length"
            choices = self._choices(request)
            output = TextOutput(" ".join(written), finish_reason, count, len(written), choices)
            outputs.append([output] * request.sampling.n)
        return outputs

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        """Return scripted or derived values."""
        self._begin("classify")
        return list(map(only_label, self._labelled(requests, 1)))

    def label_logits(self, requests: Sequence[PoolingRequest]) -> list[LabelOutput]:
        """Return scripted or derived values, for each label."""
        self._begin("label_logits")
        return self._labelled(requests, int(self._script.get("labels", 1)))

    def token_logits(self, requests: Sequence[PoolingRequest]) -> list[TokenOutput]:
        """Return scripted values, or the value that the tokens have up to and with each position,
        for each label."""
        self._begin("token_logits")
        labels = int(self._script.get("labels", 1))
        outputs: list[TokenOutput] = []
        for request in requests:
            count = len(request.token_ids)
            if not self._fits(request):
                outputs.append(overlong_logits(request, self.context_length))
                continue
            failure = self._failure([_joined(request.token_ids)])
            if failure:
                outputs.append(TokenOutput((), count, **failure))
                continue
            logits: list[tuple[float, ...]] = [
                self._labels_of(request.token_ids[: position + 1], request.adapter, labels)
                for position in request.positions
            ]
            outputs.append(TokenOutput(tuple(logits), count))
        return outputs

    def token_logprobs(self, requests: Sequence[LogprobsRequest]) -> list[LogprobsOutput]:
        """Return scripted or derived log-probabilities."""
        self._begin("token_logprobs")
        vocabulary = int(self._script.get("vocabulary", 2**18))
        scripted = {
            int(token): float(logprob)
            for token, logprob in self._script.get("token_logprobs", {}).items()
        }
        outputs: list[LogprobsOutput] = []
        for request in requests:
            tokens = request.token_ids
            failure = self._failure([_joined(tokens)])
            if not rateable(request, self.context_length, vocabulary):
                outputs.append(unrateable(request, self.context_length, vocabulary))
                continue
            if failure:
                outputs.append(LogprobsOutput(b"", len(tokens), **failure))
                continue
            logprobs: list[float] = []
            for position in range(request.start, len(tokens)):
                before, token = tokens[position - 1], tokens[position]
                # Of all pairs (token before, token), exactly one in `vocabulary` is likely.
                likely = (before + 1) % vocabulary == token
                derived = math.log(0.5 if likely else 0.5 / (vocabulary - 1))
                logprobs.append(scripted.get(token, -math.inf) if scripted else derived)
            outputs.append(LogprobsOutput.of(logprobs, len(tokens)))
        return outputs

    def embed(self, requests: Sequence[EmbedRequest]) -> list[EmbedOutput]:
        """Return word vectors. See `word_vector`."""
        self._begin("embed")
        outputs: list[EmbedOutput] = []
        for request in requests:
            count = len(request.text.split())
            failure = self._failure([request.text])
            if failure:
                outputs.append(EmbedOutput((), count, **failure))
            elif count > self.context_length:
                outputs.append(overlong_vector(count, self.context_length))
            else:
                outputs.append(EmbedOutput(word_vector(request.text), count))
        return outputs

    def sleep(self, level: int = 1) -> None:
        """Make calls fail until `wake`."""
        self.log.append(f"sleep {level}")
        self._state = f"asleep {level}"

    def wake(self) -> None:
        """Undo `sleep`."""
        self.log.append("wake")
        self._state = "awake"

    def resident_bytes(self) -> int:
        """The stated bytes where there are any; else 1 GiB awake, half at level 1, nothing at level
        2."""
        awake, asleep = self.stated_bytes(self.spec)
        if awake or asleep:
            measured = int(self._script.get("measured_away_bytes", asleep))
            return awake if self._state == "awake" else measured
        return {"awake": 2**30, "asleep 1": 2**29}.get(self._state, 0)

    def progress(self) -> int:
        """Return 0: its calls take no time."""
        return 0

    def ping(self) -> str:
        """ "cold", "awake" or "asleep <level>"."""
        return self._state

    def _begin(self, method: str) -> None:
        self.log.append(method)
        self.calls += 1
        if self._state != "awake":
            raise InfrastructureError(
                f"the engine of '{self.spec.path}' is {self._state}; start or wake it first"
            )
        time.sleep(float(self._script.get("delay_s", 0.0)))
        if self.calls == self._script.get("die_on_call"):
            os._exit(EXIT_CODE)
        if self.calls == self._script.get("fail_on_call"):
            raise InfrastructureError(
                f"the engine of '{self.spec.path}' was scripted to fail on call {self.calls}"
            )

    def _fits(self, request: PoolingRequest) -> bool:
        return 0 < len(request.token_ids) <= self.context_length

    def _failure(self, prompt: Iterable[str]) -> dict[str, Any]:
        """Return the first scripted `failure` and `detail` whose substring is in a text, empty if
        there is none."""
        texts = list(prompt)
        for part, status in self._failures.items():
            if any(part in text for text in texts):
                return {
                    "failure": status,
                    "detail": f"the engine was scripted to answer '{part}' with {status}",
                }
        return {}

    def _entries(self, adapter: str) -> Mapping[str, Any]:
        return {**self._script, **self._script.get("adapters", {}).get(Path(adapter).name, {})}

    def _text(self, request: GenerateRequest) -> str:
        prompt = _joined(request.token_ids)
        script = self._entries(request.adapter)
        for part, text in script.get("texts", {}).items():
            if part in prompt:
                return str(text)
        if "text" in script:
            return str(script["text"])
        if request.sampling.choice:
            return request.sampling.choice[0]
        return str(sum(request.token_ids) % 10)

    def _choices(self, request: GenerateRequest) -> tuple[float, ...]:
        scripted: Mapping[Any, float] = self._entries(request.adapter).get("choice_logprobs", {})
        if scripted:
            logprobs = dict(zip(map(int, scripted), map(float, scripted.values()), strict=True))
            return tuple(logprobs.get(token, -math.inf) for token in request.choice_tokens)
        logits = [token_value((*request.token_ids, token)) for token in request.choice_tokens]
        total = math.log(sum(map(math.exp, logits))) if logits else 0.0
        return tuple(logit - total for logit in logits)

    def _labelled(self, requests: Sequence[PoolingRequest], labels: int) -> list[LabelOutput]:
        outputs: list[LabelOutput] = []
        for request in requests:
            count = len(request.token_ids)
            failure = self._failure([_joined(request.token_ids)])
            if not self._fits(request):
                outputs.append(overlong_labels(request, self.context_length))
            elif failure:
                outputs.append(LabelOutput((), count, **failure))
            else:
                outputs.append(
                    LabelOutput(self._labels_of(request.token_ids, request.adapter, labels), count)
                )
        return outputs

    def _labels_of(self, token_ids: Sequence[int], adapter: str, labels: int) -> tuple[float, ...]:
        """Return the tokens' value for each label. Its sign alternates."""
        value = self._worth(token_ids, adapter)
        return tuple(itertools.islice(itertools.cycle((value, -value)), labels))

    def _worth(self, token_ids: Sequence[int], adapter: str) -> float:
        value = self._entries(adapter).get("value")
        if value is None:
            return token_value(token_ids)
        return float(value)


def _joined(token_ids: Sequence[int]) -> str:
    return " ".join(map(str, token_ids))
