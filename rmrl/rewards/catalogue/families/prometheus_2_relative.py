"""Prometheus 2, relative grading: which of two responses is better by a criterion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import prompt_file, question_of, verdicts
from rmrl.rewards.kinds.judge.asking import fill

_PROMPT = prompt_file(__file__)
_SYSTEM = (
    "You are a fair judge assistant assigned to deliver insightful feedback that compares"
    " individual performances, highlighting how each stands relative to others within the same"
    " cohort."
)
_CRITERION = (
    "[Does the model provide relevant and useful responses to the user's needs or questions?]"
)
_WITH_REFERENCE = (
    " a reference answer,",
    "###Reference Answer:\n{reference_answer}\n\n",
)
"""Parts of the prompt that the project's prompt without a reference lacks."""


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
    ground_truths: Sequence[Any],
) -> list[list[dict[str, str]]]:
    """One user turn."""
    rows: list[list[dict[str, str]]] = []
    for prompt, (first, second), truth in zip(
        text_prompts, text_responses, ground_truths, strict=True
    ):
        text = _PROMPT
        if not truth:
            for part in _WITH_REFERENCE:
                text = text.replace(part, "")
        values = {
            "instruction": question_of(prompt),
            "response_A": first,
            "response_B": second,
            "reference_answer": str(truth),
            "rubric": _CRITERION,
        }
        rows.append([{"role": "user", "content": f"{_SYSTEM}\n\n{fill(text, values)}"}])
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point, None without a result at the end."""
    pattern = r"(?i:\[RESULT(?:\]|:)[\s:*(]*(?:Response\s+)?(?P<score>[AB])\b)"
    return verdicts(results, responses, pattern, {"A": 1.0, "B": 0.0})
