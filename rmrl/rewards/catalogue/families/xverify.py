"""xVerify: does a response answer the question as the reference does?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import prompt_file, reference_prompts, verdicts

_PROMPT = prompt_file(__file__)


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[str],
    tgt_tokenizer: Any,  # noqa: ARG001
    ground_truths: Sequence[Any],
) -> list[list[dict[str, str]]]:
    """One user turn."""
    rows = zip(text_prompts, text_responses, ground_truths, strict=True)
    texts = reference_prompts(
        _PROMPT, rows, question="question", response="output", reference="answer"
    )
    return [[{"role": "user", "content": text}] for text in texts]


def rm_postprocess(results: Sequence[str], responses: Sequence[str]) -> list[float | None]:
    """1 for Correct, 0 for Incorrect, None where neither is all that was written."""
    pattern = r"^\W*(?P<score>Correct|Incorrect)\W*$"
    return verdicts(results, responses, f"(?i){pattern}", {"Correct": 1.0, "Incorrect": 0.0})
