"""What several engines do before they compute: set aside what does not fit, and cut the rest into
batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rmrl.inference.scoring_base import EmbedOutput, PoolingRequest, TokenOutput, overlong_detail

Request = TypeVar("Request")
Output = TypeVar("Output")


def answered(
    requests: Sequence[Request],
    fits: Callable[[Request], bool],
    *,
    run: Callable[[list[Request]], Sequence[Output]],
    mark: Callable[[Request], Output],
) -> list[Output]:
    """One output per request, in order: of `run` for those that fit (together, not at all if there
    are none), of `mark` for the others."""
    kept = [r for r in requests if fits(r)]
    outputs = iter(run(kept) if kept else [])
    return [next(outputs) if fits(r) else mark(r) for r in requests]


def sorted_batches(
    lengths: Sequence[int], *, max_rows: int, max_tokens: int
) -> Iterator[list[int]]:
    """Indices sorted by length, in batches of at most `max_rows` rows and `max_tokens` tokens,
    padding counted, or of a single row."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) >= max_rows or (len(batch) + 1) * lengths[i] > max_tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def overlong_logits(request: PoolingRequest, context_length: int) -> TokenOutput:
    """The mark of a sequence that does not fit."""
    tokens = len(request.token_ids)
    return TokenOutput(
        (), tokens, failure="overlong", detail=overlong_detail(tokens, context_length)
    )


def overlong_vector(tokens: int, context_length: int) -> EmbedOutput:
    """The mark of a text that does not fit."""
    return EmbedOutput(
        (), tokens, failure="overlong", detail=overlong_detail(tokens, context_length)
    )
