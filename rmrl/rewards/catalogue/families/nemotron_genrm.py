"""Nemotron GenRM: compares two responses and ranks them from 1 to 6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import turns_of, verdicts


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[list[dict[str, str]]]:
    """The prompt's turns, then a turn for each response."""
    rows: list[list[dict[str, str]]] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        shown = [
            {"role": "response_1", "content": first},
            {"role": "response_2", "content": second},
        ]
        rows.append([*turns_of(prompt), *shown])
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point, (6 - ranking score) / 5; None without a ranking
    score from 1 to 6."""
    pattern = (
        r"\[The Begin of Ranking Score\]\s*\\boxed\{\s*(?P<score>[1-6])\s*\}"
        r"\s*\[The End of Ranking Score\]"
    )
    values = {str(rank): (6 - rank) / 5 for rank in range(1, 7)}
    return verdicts(results, responses, pattern, values)
