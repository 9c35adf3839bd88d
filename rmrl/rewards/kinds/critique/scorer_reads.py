"""What the scalar model reads: prompt, reply and critique."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.kinds.bradley_terry.reward import prompt_text
from rmrl.rewards.reads.turns import prompt_turns
from rmrl.types import ScoreItem

INTRODUCTION = "A critique of the reply above:\n"


def scorer_reads(
    items: Sequence[ScoreItem], responses: Sequence[str], critiques: Sequence[str], tokenizer: Any
) -> list[Any]:
    """Return turns, or without a chat template the pair (prompt and reply, critique). `responses`
    and `critiques` have their special tokens broken already. Training reads the same."""
    reads: list[Any] = []
    for item, response, critique in zip(items, responses, critiques, strict=True):
        read: Any = (f"{prompt_text(item)}\n\n{response}", critique)
        if tokenizer.chat_template:
            reply = {"role": "assistant", "content": response}
            remark = {"role": "user", "content": INTRODUCTION + critique}
            read = [*prompt_turns(item.rm_prompt), reply, remark]
        reads.append(read)
    return reads
