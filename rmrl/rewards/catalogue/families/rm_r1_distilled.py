"""RM-R1, the models distilled from DeepSeek-R1: they reason, then say which of two is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.families import rm_r1
from rmrl.rewards.catalogue.rows import prompt_file, question_of
from rmrl.rewards.kinds.judge.asking import fill

_PROMPT = prompt_file(__file__)


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[list[dict[str, str]]]:
    """One user turn."""
    rows: list[list[dict[str, str]]] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        values = {"question": question_of(prompt), "answer_a": first, "answer_b": second}
        rows.append([{"role": "user", "content": fill(_PROMPT, values)}])
    return rows


rm_postprocess = rm_r1.rm_postprocess
