"""Judges behind an OpenAI-compatible server: /chat/completions, or /completions for a prompt
without messages.

Sent only where the sampling asks for it, because strict servers refuse entries they do not know:
`stop`, `seed`, `top_k` and `ignore_eos` (vLLM, SGLang), `response_format` (a JSON schema),
`structured_outputs` (vLLM's form of `choice` and `regex`). `extra_body` of the server's spec has
the last word, e.g. {max_tokens: null, max_completion_tokens: 512}.

Token ids do not travel over this wire. Log-probabilities of `choice_tokens` are found by text: the
i-th token is the i-th `sampling.choice`, spaces around it aside. A server told
`return_tokens_as_token_ids` (vLLM, through `extra_body`) is read by id. Tokens that are not among
the server's likeliest (20 of a chat, 5 of a completion) are -inf.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.errors import RewardError
from rmrl.inference.scoring_base import GenerateRequest, TextOutput
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError, together
from rmrl.rewards.remote.reward_wires import with_extra
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Sampling, Status

CHAT_TOP_LOGPROBS = 20
"""The most that OpenAI gives, and vLLM by default."""
COMPLETION_TOP_LOGPROBS = 5
_REFUSAL_CODES = ("content_filter", "content_policy_violation", "moderation_blocked")
_TOO_LONG = re.compile(
    r"maximum (context|model) length|longer than the maximum|context_length_exceeded|exceeds? the"
    r" context",
    re.IGNORECASE,
)


class OpenAIWire:
    """Asks for one request's samples in one post."""

    def __init__(self, spec: HTTPSpec) -> None:
        self._spec = spec
        self._client = HTTPClient(spec)

    async def submit(
        self, method: str, requests: Sequence[GenerateRequest]
    ) -> list[list[TextOutput]]:
        """See `Wire.submit`; the only method is "generate": `sampling.n` outputs per request, as an
        engine gives them."""
        if method != "generate":
            raise RewardError(
                f"the wire openai writes text and has no method '{method}'; use wire: openrlhf or"
                " slime for a reward server"
            )
        return await together(map(self._one, requests))

    async def aclose(self) -> None:
        """See `Wire.aclose`."""
        await self._client.aclose()

    async def _one(self, request: GenerateRequest) -> list[TextOutput]:
        path = "/chat/completions" if request.messages else "/completions"
        try:
            answer = await self._client.post(
                with_extra(payload(request, self._spec.model), self._spec), path
            )
            samples = self._samples(answer, request)
        except RemoteCallError as error:
            samples = [_failed(_status(error), error.detail)] * _asked(request.sampling)
        return (
            samples * request.sampling.n
            if _asked(request.sampling) < request.sampling.n
            else samples
        )

    def _samples(self, answer: Any, request: GenerateRequest) -> list[TextOutput]:
        """One output per sample asked for; those the server did not give are marked, never copied
        from others."""
        choices = answer.get("choices") if isinstance(answer, Mapping) else None
        asked, url = _asked(request.sampling), self._client.shown_url
        if not isinstance(choices, list) or not all(
            isinstance(choice, Mapping) for choice in choices
        ):
            shown = self._client.shown(repr(answer))
            raise RemoteCallError(
                "provider_error", f"{url} answered without a list of 'choices': {shown}."
            )
        if len(choices) > asked:
            raise RemoteCallError(
                "provider_error", f"{url} gave {len(choices)} samples where {asked} were asked for."
            )
        tokens_in, tokens_out = _usage(answer, len(choices))
        read = [
            self._sample(c, request, (tokens_in, out))
            for c, out in zip(choices, tokens_out, strict=True)
        ]
        lacking = _failed(
            "provider_error", f"{url} gave {len(choices)} samples where {asked} were asked for."
        )
        return read + [lacking] * (asked - len(choices))

    def _sample(
        self, choice: Mapping[str, Any], request: GenerateRequest, tokens: tuple[int, int]
    ) -> TextOutput:
        message = choice.get("message")
        refusal = message.get("refusal") if isinstance(message, Mapping) else None
        reason = choice.get("finish_reason")
        url = self._client.shown_url
        if refusal:
            return _failed(
                "judge_refused", f"The judge refused: {self._client.shown(str(refusal))}", tokens
            )
        if reason == "content_filter":
            return _failed(
                "judge_refused",
                f"The content filter of {url} held the judge's answer back.",
                tokens,
            )
        if reason in ("abort", "error"):
            return _failed(
                "provider_error",
                f"{url} broke the judge's answer off (finish_reason {reason}).",
                tokens,
            )
        text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
        if text is not None and not isinstance(text, str):
            return _failed(
                "provider_error", f"{url} gave {type(text).__name__} as the judge's text.", tokens
            )
        # No text at all is what a reasoning model leaves whose tokens ran out while it was
        # thinking.
        return TextOutput(
            text or "",
            "length" if reason == "length" else "stop",
            *tokens,
            choice_logprobs=choice_logprobs(choice, request),
        )


def payload(request: GenerateRequest, model: str) -> dict[str, Any]:
    """The body of the post, `extra_body` aside."""
    sampling = request.sampling
    body: dict[str, Any] = {"model": model} if model else {}
    if request.messages:
        body["messages"] = [
            {"role": role, "content": content} for role, content in request.messages
        ]
    else:
        body["prompt"] = request.text
    body |= {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "n": _asked(sampling),
    }
    body |= {"stop": list(sampling.stop)} if sampling.stop else {}
    body |= {"seed": sampling.seed} if sampling.seed is not None else {}
    body |= {"top_k": sampling.top_k} if sampling.top_k > 0 else {}
    body |= {"ignore_eos": True} if sampling.ignore_eos else {}
    if request.choice_tokens:
        body |= (
            {"logprobs": True, "top_logprobs": CHAT_TOP_LOGPROBS}
            if request.messages
            else {"logprobs": COMPLETION_TOP_LOGPROBS}
        )
    return body | _structure(sampling)


def choice_logprobs(choice: Mapping[str, Any], request: GenerateRequest) -> tuple[float, ...]:
    """Log-probability of each of `choice_tokens` as the first token of this sample; () where none
    were asked for."""
    if not request.choice_tokens:
        return ()
    first = _first_token(choice.get("logprobs"))
    texts: Sequence[str] = request.sampling.choice
    texts = texts if len(texts) == len(request.choice_tokens) else [""] * len(request.choice_tokens)
    return tuple(
        _sum_of(
            [
                value
                for said, value in first
                if said == f"token_id:{token}" or (text and said.strip() == text.strip())
            ]
        )
        for token, text in zip(request.choice_tokens, texts, strict=True)
    )


def _first_token(logprobs: Any) -> list[tuple[str, float]]:
    """(text, log-probability) of the candidates for the first token, in the form of
    /chat/completions or of /completions."""
    if not isinstance(logprobs, Mapping):
        return []
    content, tops = logprobs.get("content"), logprobs.get("top_logprobs")
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        found = content[0].get("top_logprobs") or [content[0]]
        pairs = [
            (entry.get("token"), entry.get("logprob"))
            for entry in found
            if isinstance(entry, Mapping)
        ]
    elif isinstance(tops, list) and tops and isinstance(tops[0], Mapping):
        pairs = list(tops[0].items())
    else:
        return []
    return [
        (text, float(value))
        for text, value in pairs
        if isinstance(text, str) and isinstance(value, int | float)
    ]


def _sum_of(logs: list[float]) -> float:
    """log(sum(exp)): "yes" and " yes" are two tokens and one choice."""
    highest = max(logs, default=-math.inf)
    return (
        highest
        if highest == -math.inf
        else highest + math.log(sum(math.exp(value - highest) for value in logs))
    )


def _structure(sampling: Sampling) -> dict[str, Any]:
    if sampling.choice:
        return {"structured_outputs": {"choice": list(sampling.choice)}}
    if sampling.regex:
        return {"structured_outputs": {"regex": sampling.regex}}
    if sampling.json_schema:
        try:
            schema = {"name": "verdict", "schema": json.loads(sampling.json_schema), "strict": True}
        except ValueError as error:
            raise RewardError(
                f"sampling.json_schema is no JSON ({error}): {sampling.json_schema[:200]}"
            ) from error
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {}


def _asked(sampling: Sampling) -> int:
    """Samples to ask for: greedy ones are equal, so one is drawn and repeated."""
    return 1 if sampling.temperature == 0 else sampling.n


def _usage(answer: Mapping[str, Any], samples: int) -> tuple[int, list[int]]:
    """(prompt tokens, tokens of each sample): the server tells their sum only, so it is split
    evenly."""
    usage = answer.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    told = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, written = (count if isinstance(count, int) else 0 for count in told)
    return read, [written // samples + (i < written % samples) for i in range(samples)]


def _status(error: RemoteCallError) -> Status:
    if error.code in _REFUSAL_CODES:
        return "judge_refused"
    too_long = error.failure == "provider_error" and (
        _TOO_LONG.search(error.code) or _TOO_LONG.search(error.detail)
    )
    return "overlong" if too_long else error.failure


def _failed(failure: Status, detail: str, tokens: tuple[int, int] = (0, 0)) -> TextOutput:
    return TextOutput("", "", *tokens, failure=failure, detail=detail)
