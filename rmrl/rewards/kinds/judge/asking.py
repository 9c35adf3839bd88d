"""The question to a judge without a drop-in: the shipped templates, filled in one pass."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rmrl.types import Messages


@cache
def template(name: str) -> str:
    """Text of the shipped template `<name>.txt`, with its placeholders."""
    return Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").strip()


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with each `{name}` of `values` replaced, all at once: a placeholder inside
    a value stays text. Other braces stay too."""
    if not values:
        return text
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({pattern})\}}", lambda match: values[match[1]], text)


def conversation_text(prompt: str | Messages) -> str:
    """A prompt as one text: a string, or a lone user turn, unchanged; several turns each with its
    role."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return str(prompt[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)


def question_of(question: str, rubric: str) -> str:
    """The question with the rubric, if there is one, below it."""
    if not rubric.strip():
        return question
    return f"{question}\n\nRubric:\n{rubric.strip()}"


def answer_form(
    *, scale: Sequence[float], choices: Sequence[str] = (), json_schema: str = ""
) -> str:
    """One sentence on the form of the verdict, which `read_vote` reads."""
    if choices:
        return f"Answer with one of these and nothing else: {', '.join(choices)}."
    if json_schema:
        return f"Answer with JSON of this schema and nothing else: {json_schema}"
    bounds = "your score"
    if scale:
        bounds = f"from {min(scale):g} to {max(scale):g}"
    return f'Say briefly why, then end with a line "Score: <number>", the number being {bounds}.'
