"""Judges behind an OpenAI-compatible server: /chat/completions, or /completions for a prompt
without messages.

Entries that strict servers refuse are sent only where the sampling sets them: `stop`, `seed`,
`top_k` and `ignore_eos` (vLLM, SGLang), `response_format` (a JSON schema), `structured_outputs`
(vLLM's form of `choice` and `regex`). `extra_body` of the server's spec overrides them all, e.g.
{max_tokens: null, max_completion_tokens: 512}.

Token ids are not sent over this wire. Log-probabilities of `choice_tokens` are matched by text: the
i-th token is the i-th `sampling.choice`, spaces around it aside. With `return_tokens_as_token_ids`
(vLLM, through `extra_body`) they are matched by id. Tokens that are not among the server's
likeliest (20 of a chat, 5 of a completion) are -inf.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.rewards.remote.values import with_extra
from rmrl.together import together
from rmrl.types import Sampling, Status

CHAT_TOP_LOGPROBS = 20
"""Maximum of OpenAI, and of vLLM by default."""
COMPLETION_TOP_LOGPROBS = 5
_REFUSAL_CODES = ("content_filter", "content_policy_violation", "moderation_blocked")
_TOO_LONG = re.compile(
    r"maximum (context|model) length|longer than the maximum|context_length_exceeded|exceeds? the"
    r" context",
    re.IGNORECASE,
)


class OpenAIWire:
    """Wire that requests all samples of one request in one post."""

    def __init__(self, spec: HTTPSpec) -> None:
        self._spec = spec
        self._client = HTTPClient(spec)

    async def submit(
        self, method: str, requests: Sequence[GenerateRequest]
    ) -> list[list[TextOutput]]:
        """See `Wire.submit`. The only method is "generate": `sampling.n` outputs per request, as
        from an engine."""
        if method != "generate":
            raise RewardError(
                f"the wire openai writes text and has no method '{method}'; use wire: openrlhf or"
                " slime for a reward server"
            )
        return await together(map(self._one, requests))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _one(self, request: GenerateRequest) -> list[TextOutput]:
        path = "/chat/completions" if request.messages else "/completions"
        body = with_extra(payload(request, self._spec.model), self._spec)
        count = _requested(request.sampling)
        try:
            samples = self._samples(await self._client.post(body, path), request)
        except RemoteCallError as error:
            failure = error.failure
            if error.code in _REFUSAL_CODES:
                failure = "judge_refused"
            elif failure == "provider_error" and (
                _TOO_LONG.search(error.code) or _TOO_LONG.search(error.detail)
            ):
                failure = "overlong"
            samples = [_failed(failure, error.detail)] * count
        if count < request.sampling.n:
            return samples * request.sampling.n
        return samples

    def _samples(self, answer: Any, request: GenerateRequest) -> list[TextOutput]:
        """Return one output per requested sample; samples that the server left out are marked,
        never copied from others."""
        choices = answer.get("choices") if isinstance(answer, Mapping) else None
        url = self._client.shown_url
        if not isinstance(choices, list) or not all(isinstance(each, Mapping) for each in choices):
            text = self._client.shown(repr(answer))
            raise RemoteCallError(
                "provider_error", f"{url} answered without a list of 'choices': {text}."
            )
        count = _requested(request.sampling)
        mismatch = f"{url} gave {len(choices)} samples where {count} were requested."
        if len(choices) > count:
            raise RemoteCallError("provider_error", mismatch)
        tokens_in, tokens_out = _usage(answer, len(choices))
        samples: list[TextOutput] = [
            self._sample(choice, request, (tokens_in, tokens))
            for choice, tokens in zip(choices, tokens_out, strict=True)
        ]
        missing = count - len(choices)
        return samples + [_failed("provider_error", mismatch)] * missing

    def _sample(
        self, choice: Mapping[str, Any], request: GenerateRequest, tokens: tuple[int, int]
    ) -> TextOutput:
        url = self._client.shown_url
        reason = choice.get("finish_reason")
        text = choice.get("text")
        refusal = None
        message = choice.get("message")
        if isinstance(message, Mapping):
            text = message.get("content")
            refusal = message.get("refusal")
        if refusal:
            detail = f"The judge refused: {self._client.shown(str(refusal))}"
            return _failed("judge_refused", detail, tokens)
        if reason == "content_filter":
            detail = f"The content filter of {url} held the judge's answer back."
            return _failed("judge_refused", detail, tokens)
        if reason in ("abort", "error"):
            detail = f"{url} broke the judge's answer off (finish_reason {reason})."
            return _failed("provider_error", detail, tokens)
        if text is not None and not isinstance(text, str):
            detail = f"{url} gave {type(text).__name__} as the judge's text."
            return _failed("provider_error", detail, tokens)
        # A reasoning model whose tokens ran out while it was thinking leaves no text at all.
        return TextOutput(
            text or "",
            "length" if reason == "length" else "stop",
            *tokens,
            choice_logprobs=choice_logprobs(choice, request),
        )


def payload(request: GenerateRequest, model: str) -> dict[str, Any]:
    """Build the body of the post, `extra_body` aside."""
    sampling = request.sampling
    body: dict[str, Any] = {}
    if model:
        body["model"] = model
    if request.messages:
        body["messages"] = [{"role": role, "content": text} for role, text in request.messages]
    else:
        body["prompt"] = request.text
    body["max_tokens"] = sampling.max_tokens
    body["temperature"] = sampling.temperature
    body["top_p"] = sampling.top_p
    body["n"] = _requested(sampling)
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if sampling.ignore_eos:
        body["ignore_eos"] = True
    if request.choice_tokens and request.messages:
        body |= {"logprobs": True, "top_logprobs": CHAT_TOP_LOGPROBS}
    elif request.choice_tokens:
        body["logprobs"] = COMPLETION_TOP_LOGPROBS
    if sampling.choice:
        body["structured_outputs"] = {"choice": list(sampling.choice)}
    elif sampling.regex:
        body["structured_outputs"] = {"regex": sampling.regex}
    elif sampling.json_schema:
        try:
            schema = {"name": "verdict", "schema": json.loads(sampling.json_schema), "strict": True}
        except ValueError as error:
            raise RewardError(
                f"sampling.json_schema is no JSON ({error}): {sampling.json_schema[:200]}"
            ) from error
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def choice_logprobs(choice: Mapping[str, Any], request: GenerateRequest) -> tuple[float, ...]:
    """Return the log-probability of each of `choice_tokens` as this sample's first token, ()
    without `choice_tokens`."""
    if not request.choice_tokens:
        return ()
    candidates = _first_token(choice.get("logprobs"))
    texts: Sequence[str] = request.sampling.choice
    if len(texts) != len(request.choice_tokens):
        texts = [""] * len(request.choice_tokens)
    logprobs: list[float] = []
    for token, text in zip(request.choice_tokens, texts, strict=True):
        matches: list[float] = []
        for candidate, logprob in candidates:
            same_text = bool(text) and candidate.strip() == text.strip()
            if same_text or candidate == f"token_id:{token}":
                matches.append(logprob)
        # log(sum(exp)): "yes" and " yes" are two tokens and one choice.
        highest = max(matches, default=-math.inf)
        if highest > -math.inf:
            highest += math.log(sum(math.exp(value - highest) for value in matches))
        logprobs.append(highest)
    return tuple(logprobs)


def _first_token(logprobs: Any) -> list[tuple[str, float]]:
    """(text, log-probability) of the candidates for the first token, in the form of
    /chat/completions or of /completions."""
    if not isinstance(logprobs, Mapping):
        return []
    pairs: list[tuple[Any, Any]] = []
    content = logprobs.get("content")
    tops = logprobs.get("top_logprobs")
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        for entry in content[0].get("top_logprobs") or [content[0]]:
            if isinstance(entry, Mapping):
                pairs.append((entry.get("token"), entry.get("logprob")))
    elif isinstance(tops, list) and tops and isinstance(tops[0], Mapping):
        pairs += tops[0].items()
    candidates: list[tuple[str, float]] = [
        (text, float(logprob))
        for text, logprob in pairs
        if isinstance(text, str) and isinstance(logprob, int | float)
    ]
    return candidates


def _requested(sampling: Sampling) -> int:
    """Return the number of samples to request: greedy ones are equal, so one is drawn and
    repeated."""
    return 1 if sampling.temperature == 0 else sampling.n


def _usage(answer: Mapping[str, Any], samples: int) -> tuple[int, list[int]]:
    """(prompt tokens, tokens of each sample). The server reports only their sum, which is split
    evenly."""
    usage = answer.get("usage")
    tokens_in = 0
    tokens_out = 0
    if isinstance(usage, Mapping):
        if isinstance(usage.get("prompt_tokens"), int):
            tokens_in = usage["prompt_tokens"]
        if isinstance(usage.get("completion_tokens"), int):
            tokens_out = usage["completion_tokens"]
    if not samples:
        return tokens_in, []
    share, rest = divmod(tokens_out, samples)
    return tokens_in, [share + (i < rest) for i in range(samples)]


def _failed(failure: Status, detail: str, tokens: tuple[int, int] = (0, 0)) -> TextOutput:
    return TextOutput("", "", *tokens, failure=failure, detail=detail)
