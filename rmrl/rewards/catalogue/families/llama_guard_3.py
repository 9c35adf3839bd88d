"""Llama Guard 3: is the response safe?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.rows import turns_of

_CATEGORIES = tuple(f"S{number}" for number in range(1, 15))


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[str],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[list[dict[str, str]]]:
    """The prompt's turns, and the response as the assistant's. A turn with another role counts as
    the user's, and successive turns with one role are one turn, a blank line between them."""
    rows: list[list[dict[str, str]]] = []
    for prompt, response in zip(text_prompts, text_responses, strict=True):
        turns: list[dict[str, str]] = []
        for turn in [*turns_of(prompt), {"role": "assistant", "content": response}]:
            role = "assistant" if turn["role"] == "assistant" else "user"
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"] += f"\n\n{turn['content']}"
            else:
                turns.append({"role": role, "content": turn["content"]})
        rows.append(turns)
    return rows


def rm_postprocess(results: Sequence[str]) -> list[Any]:
    """1 for safe, 0 for unsafe with its categories, None where the first line is neither, or a
    second line names no category."""
    scores: list[Any] = []
    for text in results:
        first, _, rest = text.strip().partition("\n")
        categories = [part.strip() for part in rest.strip().split(",") if part.strip()]
        if first.strip() == "safe" and not categories:
            scores.append({"score": 1.0, "categories": ""})
        elif first.strip() == "unsafe" and set(categories) <= set(_CATEGORIES):
            scores.append({"score": 0.0, "categories": ",".join(categories)})
        else:
            scores.append(None)
    return scores
