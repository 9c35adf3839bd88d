"""Chatbot Arena's rows as its Kaggle set has them (lmarena-ai/arena-human-preference-55k): a
list of questions and one of each model's responses, written as JSON texts, and the verdict in three
columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rmrl.types import Message

_VERDICTS = {
    "winner_model_a": "model_a", "winner_model_b": "model_b", "winner_tie": "tie",
}  # fmt: skip
_TEXTS = ("prompt", "response_a", "response_b")


def as_battle(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return such a row with `conversation_a`, `conversation_b` and `winner`, as the Arena's other
    sets have them; other rows unchanged. A response that is null becomes an empty text."""
    if not {*_VERDICTS, *_TEXTS} <= values.keys():
        return values
    questions, *answers = (_texts_in(values[name]) for name in _TEXTS)
    if not questions or any(len(each) != len(questions) for each in answers):
        return values
    row = {name: each for name, each in values.items() if name not in (*_VERDICTS, *_TEXTS)}
    for letter, texts in zip("ab", answers, strict=True):
        turns: list[Message] = []
        for question, answer in zip(questions, texts, strict=True):
            turns.append({"role": "user", "content": question})
            turns.append({"role": "assistant", "content": answer})
        row[f"conversation_{letter}"] = turns
    row["winner"] = next((_VERDICTS[name] for name in _VERDICTS if _is_one(values[name])), None)
    return row


def _texts_in(value: Any) -> list[str]:
    """Return the texts that a JSON text lists, [] for anything else."""
    try:
        listed = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return []
    if not isinstance(listed, list) or not all(isinstance(each, str | None) for each in listed):
        return []
    return [each or "" for each in listed]


def _is_one(value: Any) -> bool:
    """Whether a verdict's column says yes; csv's cells are texts."""
    return value in (1, "1", "1.0", "True", "true")
