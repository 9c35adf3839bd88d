"""DeepSeek-GRM: writes its principles and a critique, then a score from 1 to 10 for each
response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import prompt_file, question_of, verdicts
from rmrl.rewards.kinds.judge.asking import fill

_PROMPT = prompt_file(__file__)
_SCORES = [str(score) for score in range(1, 11)]


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[list[dict[str, str]]]:
    """One user turn."""
    rows: list[list[dict[str, str]]] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        values = {
            "conversation": question_of(prompt),
            "response_1": first,
            "response_2": second,
        }
        rows.append([{"role": "user", "content": fill(_PROMPT, values)}])
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point: 1, 0.5 where both scores are equal, 0; None without
    two scores from 1 to 10 in a box at the end."""
    pair = r"(?P<score>\d+\s*,\s*\d+)"
    pattern = rf"\\boxed\{{\s*(?:{pair}|\[\s*{pair}\s*\])\s*\}}"
    values: dict[str, float] = {}
    for first in _SCORES:
        for second in _SCORES:
            share = 0.5 if first == second else float(int(first) > int(second))
            values[f"{first},{second}"] = share
    return verdicts(results, responses, pattern, values)
