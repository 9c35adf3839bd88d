"""DeepSeek-GRM: writes its principles and a critique, then a score from 1 to 10 for each
response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.card import Card, Licence
from rmrl.rewards.catalogue.rows import prompt_file, question_of, verdicts
from rmrl.rewards.kinds.judge.asking import fill

CARD = Card(
    title="DeepSeek-GRM",
    models={
        "deepseek-grm-16b": "BBQGOD/DeepSeek-GRM-16B",
        "deepseek-grm-27b": "BBQGOD/DeepSeek-GRM-27B",
    },
    licence=Licence("not found", "its base model DeepSeek-V2-Lite has use restrictions"),
    licences={
        "deepseek-grm-27b": Licence(
            "not found", "its base model Gemma 2 has Google's terms and prohibited uses"
        )
    },
    reads=(
        "the last user turn, or the row's rm_prompt where it has one, and two responses in both"
        " orders; of the scores in the box that ends its answer the higher one wins, equal ones tie"
    ),
    paper="https://arxiv.org/abs/2504.02495",
    source="appendix of the paper: the prompt of DeepSeek-GRM (default), read in a transcript",
    tried=(
        "prompt in the paper's words; its line breaks could not be confirmed byte for byte, since"
        " the paper prints them inside a table. Reading on answers in its form; not run with the"
        " weights. The paper samples 8 to 32 votes at temperature 0.5: sampling.n and"
        " sampling.temperature"
    ),
)
SPEC: dict[str, Any] = {
    "kind": "group",
    "fence": False,
    "sampling": {"max_tokens": 2048, "temperature": 0.0},
}
_PROMPT = prompt_file(__file__)
_SCORES = [str(score) for score in range(1, 11)]


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[list[dict[str, str]]]:
    """One user turn."""
    rows: list[list[dict[str, str]]] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        values = {
            "conversation": question_of(prompt),
            "response_1": first,
            "response_2": second,
        }
        rows.append([{"role": "user", "content": fill(_PROMPT, values)}])
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point: 1, 0.5 where both scores are equal, 0; None without
    two scores from 1 to 10 in a box at the end."""
    pair = r"(?P<score>\d+\s*,\s*\d+)"
    pattern = rf"\\boxed\{{\s*(?:{pair}|\[\s*{pair}\s*\])\s*\}}"
    values: dict[str, float] = {}
    for first in _SCORES:
        for second in _SCORES:
            share = 0.5 if first == second else float(int(first) > int(second))
            values[f"{first},{second}"] = share
    return verdicts(results, responses, pattern, values)
