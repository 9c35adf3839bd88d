"""TIGER-Lab's general-verifier: is a final answer equivalent to the reference?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.answers.format import last_boxed
from rmrl.rewards.catalogue.rows import prompt_file, reference_prompts, verdicts

_PROMPT = prompt_file(__file__)


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[str],
    tgt_tokenizer: Any,  # noqa: ARG001
    ground_truths: Sequence[Any],
) -> list[str]:
    """The prompt as plain text: the model was trained without a chat template."""
    answers: list[str] = []
    for response in text_responses:
        answer = last_boxed(response)
        answers.append(response if answer is None else answer)
    rows = zip(text_prompts, answers, ground_truths, strict=True)
    return reference_prompts(
        _PROMPT, rows, question="question", response="student_answer", reference="ground_truth"
    )


def rm_postprocess(results: Sequence[str], responses: Sequence[str]) -> list[float | None]:
    """1 for Yes, 0 for No, None without a decision at the end."""
    pattern = r"Final Decision:\s*\**\s*(?P<score>Yes|No)\b"
    return verdicts(results, responses, pattern, {"Yes": 1.0, "No": 0.0})
