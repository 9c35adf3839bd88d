"""Prometheus 2, absolute grading: a score from 1 to 5 by a rubric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import prompt_file, question_of, verdicts
from rmrl.rewards.kinds.judge.asking import fill

_PROMPT = prompt_file(__file__)
_SYSTEM = (
    "You are a fair judge assistant tasked with providing clear, objective feedback based on"
    " specific criteria, ensuring each assessment reflects the absolute standards set for"
    " performance."
)
_RUBRIC = (
    "[Does the model provide relevant and useful responses to the user's needs or questions?]\n"
    "Score 1: The model's responses are irrelevant or unhelpful to the user's needs or queries.\n"
    "Score 2: The model sometimes provides helpful information, but often fails to address the"
    " user's actual needs or questions.\n"
    "Score 3: The model generally provides helpful responses that address the user's needs, though"
    " it may occasionally miss the mark.\n"
    "Score 4: The model regularly provides helpful responses that are well-aligned with the user's"
    " inquiries, with only rare inaccuracies.\n"
    "Score 5: The model consistently offers highly relevant and useful responses that perfectly"
    " cater to the user's needs and inquiries."
)
_WITH_REFERENCE = (
    " a reference answer that gets a score of 5,",
    "###Reference Answer (Score 5):\n{reference_answer}\n\n",
)
"""Parts of the prompt that the project's prompt without a reference lacks."""


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[str],
    tgt_tokenizer: Any,  # noqa: ARG001
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Any],
) -> list[list[dict[str, str]]]:
    """One user turn."""
    rows: list[list[dict[str, str]]] = []
    for prompt, response, truth, info in zip(
        text_prompts, text_responses, ground_truths, extra_infos, strict=True
    ):
        text = _PROMPT
        if not truth:
            for part in _WITH_REFERENCE:
                text = text.replace(part, "")
        values = {
            "instruction": question_of(prompt),
            "response": response,
            "reference_answer": str(truth),
            "rubric": str((info or {}).get("rubric") or _RUBRIC),
        }
        rows.append([{"role": "user", "content": f"{_SYSTEM}\n\n{fill(text, values)}"}])
    return rows


def rm_postprocess(results: Sequence[str], responses: Sequence[str]) -> list[float | None]:
    """(score - 1) / 4, None without a whole score from 1 to 5 at the end.

    Without the mark [RESULT] the score begins a sentence, or stands in brackets: 'it would deserve
    a score of 5' is no verdict.
    """
    pattern = (
        r"(?i:(?:\[(?:RESULT|SCORE)\]"
        r"|(?=the|my|final|overall|total|result|score)"
        r"(?<!\[(?:RESULT|SCORE)\](?s:.*))(?<=(?:^|[.!?\n(\[])[\s*#]*)"
        r"(?:(?:the|my|final|overall|total)\s+){0,3}(?:result|score(?:\s+of)?))[\s:*(\[]*"
        r"(?:(?:score of|score:|result:)\s*)?(?P<score>[1-5])(?:\s*(?:/|out\s+of)\s*5)?)"
    )
    values = {str(score): (score - 1) / 4 for score in range(1, 6)}
    return verdicts(results, responses, pattern, values)
