"""RM-R1, the instruct models: its own rubric or solution, then which of two is better."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import prompt_file, question_of, verdicts

_QUOTES = re.compile(r"<(quote|summary)_([AB])>.*?</\1_\2>", re.DOTALL)
"""The model's own marks around what it took from the responses."""
_SYSTEM = prompt_file(__file__)


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[list[dict[str, str]]]:
    """A system turn with the task, a user turn with the question and both responses."""
    rows: list[list[dict[str, str]]] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        shown = (
            f"[Client Question]\n{question_of(prompt)}\n\n"
            f"[The Start of Chatbot A's Response]\n{first}\n[The End of Chatbot A's Response]\n\n"
            f"[The Start of Chatbot B's Response]\n{second}\n[The End of Chatbot B's Response]"
        )
        rows.append([{"role": "system", "content": _SYSTEM}, {"role": "user", "content": shown}])
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point, None without a closed answer."""
    pattern = r"<answer>\s*\[\[(?P<score>[AB])\]\]\s*</answer>"
    own = [_QUOTES.sub(" ", text) for text in results]
    return verdicts(own, responses, pattern, {"A": 1.0, "B": 0.0})
