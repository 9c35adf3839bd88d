"""PandaLM: which of two responses is better, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import prompt_file, question_of, verdicts
from rmrl.rewards.kinds.judge.asking import fill

_PROMPT = prompt_file(__file__)


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[str]:
    """Plain text: the model has no chat template."""
    rows: list[str] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        values = {
            "instruction": question_of(prompt),
            "response_1": first.strip(),
            "response_2": second.strip(),
        }
        rows.append(fill(_PROMPT, values))
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point, from the first line alone."""
    heads = [text.strip().partition("\n")[0] for text in results]
    pattern = r"(?i)^(?P<score>1|2|tie)$"
    return verdicts(heads, responses, pattern, {"1": 1.0, "2": 0.0, "tie": 0.5})
