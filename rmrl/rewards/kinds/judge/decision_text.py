"""What a server of decisions reads: prompt and response as one text. The questions come beside
it."""

from __future__ import annotations

from collections.abc import Sequence

from rmrl.rewards.kinds.judge.asking import conversation_text, fill, template
from rmrl.rewards.kinds.shared.rendering import exhibits
from rmrl.types import ScoreItem

END = "Criterion:\n"
"""Text in a rubric's template. Before it stands what all questions share."""


def decision_texts(items: Sequence[ScoreItem], *, fenced: bool) -> list[str]:
    """Return the text for each item. `fenced`: the response stands between markers."""
    head, _ = template("rubric").split(END)
    texts: list[str] = []
    for item, exhibit in zip(items, exhibits(items, None, fenced=fenced), strict=True):
        values = {"prompt": conversation_text(item.rm_prompt), "response": exhibit.text}
        texts.append(fill(head, values).strip())
    return texts
