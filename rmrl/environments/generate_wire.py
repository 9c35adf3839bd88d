"""vLLM's `/inference/v1/generate` as JSON: the request's token ids, the reply's ids and
log-probabilities."""

from __future__ import annotations

import secrets
from typing import Any

from rmrl.types import Generation

PATH = "/inference/v1/generate"


class RefusedError(Exception):
    """A request that gets an error in OpenAI's form."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def body(self) -> dict[str, Any]:
        """Return the error as JSON."""
        return {"error": {"message": str(self), "type": "invalid_request", "code": self.status}}


def read_request(body: Any) -> tuple[list[int], int | None, tuple[int, ...]]:
    """Return the prompt's tokens, the turn's limit and its stop tokens. Other sampling parameters
    are the run's. Raises RefusedError."""
    tokens = body.get("token_ids") if isinstance(body, dict) else None
    if not tokens or not _are_ids(tokens):
        raise RefusedError(400, "token_ids: give the prompt's token ids")
    if body.get("features") or body.get("content_parts"):
        raise RefusedError(400, "the policy reads text alone, no images")
    parameters = body.get("sampling_params") or {}
    if not isinstance(parameters, dict):
        raise RefusedError(400, "sampling_params: give an object")
    limit = parameters.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise RefusedError(400, "sampling_params.max_tokens: give a whole number above 0")
    stops = parameters.get("stop_token_ids") or []
    if not _are_ids(stops):
        raise RefusedError(400, "sampling_params.stop_token_ids: give token ids")
    return tokens, limit, tuple(stops)


def _are_ids(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def reply(turn: Generation, *, model: str, prompt_tokens: int) -> dict[str, Any]:
    """Return a sampled turn as the endpoint's answer."""
    ids = turn.token_ids.tolist()
    logprobs = [0.0] * len(ids) if turn.logprobs is None else turn.logprobs.tolist()
    content = [
        {"token": f"token_id:{token}", "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]
    choice = {
        "index": 0,
        "token_ids": ids,
        "logprobs": {"content": content},
        "finish_reason": turn.finish_reason,
    }
    return {
        "request_id": secrets.token_hex(8),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(ids),
            "total_tokens": prompt_tokens + len(ids),
        },
    }
