"""CompassVerifier: is a response's final answer the reference's?"""

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
        _PROMPT, rows, question="question", response="llm_response", reference="gold_answer"
    )
    return [[{"role": "user", "content": text}] for text in texts]


def rm_postprocess(results: Sequence[str], responses: Sequence[str]) -> list[float | None]:
    """1 for A, 0 for B and C, with or without its word; None without a judgement that is the whole
    answer, or a box or 'Final Judgment: ' at the end of it."""
    values: dict[str, float] = {}
    forms: list[str] = []
    for letter, word in (("A", "CORRECT"), ("B", "INCORRECT"), ("C", "INVALID")):
        values[letter] = values[word] = float(letter == "A")
        after = rf"(?:\W{{0,9}}(?i:{word})\b)?"
        alone = rf"(?:(?P<score>{letter})\b{after}|(?P<score>(?i:{word}))\b)"
        forms.append(rf"boxed\{{\s*(?P<score>{letter})\s*\}}{after}")
        forms.append(rf"\A\W*{alone}")
        forms.append(rf"(?m:^)\W{{0,9}}(?i:Final Judge?ment)\W*{alone}")
    return verdicts(results, responses, "|".join(forms), values)
