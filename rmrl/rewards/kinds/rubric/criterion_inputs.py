"""What a judge reads for each criterion: prompt and response, then the criterion with its answers.

All inputs of a response begin with the same text and differ behind `END`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.kinds.judge.asking import answer_form, conversation_text, fill, template
from rmrl.rewards.kinds.judge.decision_text import END
from rmrl.rewards.kinds.rubric.criteria import Criterion
from rmrl.rewards.kinds.shared.rendering import Rendered, as_judge_input, exhibits
from rmrl.rewards.kinds.shared.tokenizing import tokenize_ends
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.types import ScoreItem


def criterion_inputs(
    items: Sequence[ScoreItem],
    criteria: Sequence[Sequence[Criterion]],
    tokenizer: Any,
    *,
    fenced: bool,
    where: str,
) -> list[tuple[Rendered, ...]]:
    """Return each item's inputs, one for each criterion. `where`: the reward, for messages."""
    inputs: list[list[Any]] = []
    displayed = exhibits(items, tokenizer, fenced=fenced)
    neutral = neutraliser(tokenizer)
    for item, exhibit, own in zip(items, displayed, criteria, strict=True):
        reads: list[Any] = []
        inputs.append(reads)
        for criterion in own:
            answers = tuple(neutral(text) for text, _ in criterion.choices)
            form = answer_form(scale=(), choices=answers)
            if not criterion.yes_or_no:
                form = f"The answers go from not at all to fully. {form}"
            values = {
                "prompt": conversation_text(item.rm_prompt),
                "response": exhibit.text,
                "criterion": neutral(criterion.text),
                "answer": form,
            }
            reads.append(as_judge_input(fill(template("rubric"), values), exhibit, tokenizer))
    return tokenize_ends(inputs, tokenizer, end=END, where=where)
