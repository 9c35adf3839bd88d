"""Nemotron GenRM: compares two responses and ranks them from 1 to 6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.card import LLAMA, Card, Licence
from rmrl.rewards.catalogue.rows import turns_of, verdicts

CARD = Card(
    title="Nemotron GenRM",
    models={
        "nemotron-genrm-49b": "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM",
        "nemotron-genrm-49b-multilingual": "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM-Multilingual",
    },
    licence=Licence("NVIDIA Open Model License and Llama 3.3 Community License", LLAMA),
    reads=(
        "the last user turn, or the row's rm_prompt where it has one, and two responses in both"
        " orders, as turns of the roles response_1 and response_2 that its chat template"
        " knows; of its ranking score, 1 (the first is much better) is 1, 6 is 0, and"
        " each step between is 0.2"
    ),
    paper="https://arxiv.org/abs/2505.11475",
    source=(
        "https://huggingface.co/nvidia/Llama-3_3-Nemotron-Super-49B-GenRM; roles and form of the"
        " answer in NVIDIA's NeMo Gym (its GenRM model and its tests of generative reward models)"
    ),
    tried=(
        "turns, and reading on the valid answer of NeMo Gym's tests; the card's own recorded answer"
        " was not found; not run with the weights"
    ),
)
SPEC: dict[str, Any] = {
    "kind": "group",
    "fence": False,
    "sampling": {"max_tokens": 8192, "temperature": 0.0},
}


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[list[dict[str, str]]]:
    """The turns of the prompt, then a turn for each response."""
    rows: list[list[dict[str, str]]] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        shown = [
            {"role": "response_1", "content": first},
            {"role": "response_2", "content": second},
        ]
        rows.append([*turns_of(prompt), *shown])
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point, (6 - ranking score) / 5; None without a ranking
    score from 1 to 6."""
    pattern = (
        r"\[The Begin of Ranking Score\]\s*\\boxed\{\s*(?P<score>[1-6])\s*\}"
        r"\s*\[The End of Ranking Score\]"
    )
    values = {str(rank): (6 - rank) / 5 for rank in range(1, 7)}
    return verdicts(results, responses, pattern, values)
