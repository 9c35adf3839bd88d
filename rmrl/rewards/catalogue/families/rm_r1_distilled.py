"""RM-R1, the models distilled from DeepSeek-R1: they reason, then say which of two is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.card import Card, Licence
from rmrl.rewards.catalogue.families import rm_r1
from rmrl.rewards.catalogue.rows import prompt_file, question_of
from rmrl.rewards.kinds.judge.asking import fill

CARD = Card(
    title="RM-R1 (distilled from DeepSeek-R1)",
    models={
        "rm-r1-deepseek-distilled-7b": "gaotang/RM-R1-DeepSeek-Distilled-Qwen-7B",
        "rm-r1-deepseek-distilled-14b": "gaotang/RM-R1-DeepSeek-Distilled-Qwen-14B",
        "rm-r1-deepseek-distilled-32b": "gaotang/RM-R1-DeepSeek-Distilled-Qwen-32B",
    },
    licence=Licence("MIT"),
    reads=(
        "question and two responses, in both orders; it reasons, then writes"
        " <answer>[[A]]</answer> or <answer>[[B]]</answer>"
    ),
    paper="https://arxiv.org/abs/2505.02387",
    source=(
        "https://github.com/RM-R1-UIUC/RM-R1 (demo/demo.ipynb); the licence is that of the card of"
        " RM-R1-DeepSeek-Distilled-Qwen-7B"
    ),
    tried="prompt word for word from the demo; reading on its form; not run with the weights",
)
SPEC: dict[str, Any] = {
    "kind": "group",
    "fence": False,
    "sampling": {"max_tokens": 8192, "temperature": 0.0},
}
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
