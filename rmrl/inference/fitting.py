"""Prepare requests in several engines: set aside requests that do not fit, and cut the rest into
batches with similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rmrl.inference.reward_engine_base import (
    EmbedOutput,
    LogprobsOutput,
    LogprobsRequest,
    PoolingRequest,
    TokenOutput,
    overlong_detail,
)

Request = TypeVar("Request")
Output = TypeVar("Output")


def answered(
    requests: Sequence[Request],
    fits: Callable[[Request], bool],
    *,
    run: Callable[[list[Request]], Sequence[Output]],
    mark: Callable[[Request], Output],
) -> list[Output]:
    """Return one output per request, in order. `run` gives the outputs for requests that fit (in
    one call, or none if there are none), `mark` for the others."""
    fitting = [request for request in requests if fits(request)]
    computed = iter(run(fitting) if fitting else [])
    outputs: list[Output] = [
        next(computed) if fits(request) else mark(request) for request in requests
    ]
    return outputs


def up_to_padding(requests: Sequence[PoolingRequest], padding: int | None) -> list[PoolingRequest]:
    """Return requests without padding tokens at their ends, which transformers does not read."""
    shorter: list[PoolingRequest] = []
    for request in requests:
        end = len(request.token_ids)
        while end > 1 and request.token_ids[end - 1] == padding:
            end -= 1
        shorter.append(replace(request, token_ids=request.token_ids[:end]))
    return shorter


def by_adapter(requests: Sequence[Any]) -> dict[str, list[int]]:
    """Return adapter -> its requests' positions, as they are first used."""
    positions: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        positions.setdefault(request.adapter, []).append(i)
    return positions


def sorted_batches(
    lengths: Sequence[int], *, max_rows: int, max_tokens: int
) -> Iterator[list[int]]:
    """Yield indices sorted by length, in batches with at most `max_rows` rows and `max_tokens`
    tokens (padding counted), or with a single row."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) >= max_rows or (len(batch) + 1) * lengths[i] > max_tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def overlong_logits(request: PoolingRequest, context_length: int) -> TokenOutput:
    """Mark a sequence that does not fit."""
    tokens = len(request.token_ids)
    detail = overlong_detail(tokens, context_length)
    return TokenOutput((), tokens, failure="overlong", detail=detail)


def rateable(request: LogprobsRequest, context_length: int, vocabulary: int) -> bool:
    """Return whether the text leaves a place free in the context, and every token is an id in the
    model's `vocabulary`."""
    tokens = request.token_ids
    return len(tokens) < context_length and max(tokens) < vocabulary


def unrateable(request: LogprobsRequest, context_length: int, vocabulary: int) -> LogprobsOutput:
    """Mark a text that is not `rateable`."""
    tokens = len(request.token_ids)
    if tokens >= context_length:
        detail = (
            f"prompt and response have {tokens} tokens and max_model_len is {context_length}, of"
            " which one place stays free; give the reward's engine.max_model_len"
        )
        return LogprobsOutput(b"", tokens, failure="overlong", detail=detail)
    detail = (
        f"the text has token {max(request.token_ids)}, and the model's vocabulary has {vocabulary}"
    )
    return LogprobsOutput(b"", tokens, failure="provider_error", detail=detail)


def overlong_vector(tokens: int, context_length: int) -> EmbedOutput:
    """Mark a text that does not fit."""
    detail = overlong_detail(tokens, context_length)
    return EmbedOutput((), tokens, failure="overlong", detail=detail)
