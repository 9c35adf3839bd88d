"""Battles between two models, as Chatbot Arena and MT-Bench have them.

prompt, response_a, response_b, winner_model_a ...   lmarena-ai/arena-human-preference-55k: lists of
                                                     questions and responses as JSON texts, and the
                                                     verdict in three columns
conversation_a, conversation_b, turn                 lmsys/mt_bench_human_judgments: the verdict is
                                                     about the conversations up to this turn
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rmrl.types import Message

_VERDICTS = {
    "winner_model_a": "model_a", "winner_model_b": "model_b", "winner_tie": "tie",
}  # fmt: skip
_TEXTS = ("prompt", "response_a", "response_b")
_YES = (1, "1", "1.0", "True", "true")
"""A verdict's column says yes so. Cells in csv are texts."""
_TALKS = ("conversation_a", "conversation_b")


def as_battle(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return such a row with `conversation_a`, `conversation_b` and `winner` alone, as the Arena's
    other sets have them; other rows unchanged. A response that is null becomes an empty text."""
    if {"turn", *_TALKS} <= values.keys():
        return {**values, **{name: _up_to(values["turn"], values[name]) for name in _TALKS}}
    if not {*_VERDICTS, *_TEXTS} <= values.keys():
        return values
    questions, *answers = (_texts_in(values[name]) for name in _TEXTS)
    if not questions or any(len(each) != len(questions) for each in answers):
        return values
    row = {name: each for name, each in values.items() if name not in (*_VERDICTS, *_TEXTS)}
    for name, texts in zip(_TALKS, answers, strict=True):
        turns: list[Message] = []
        for question, answer in zip(questions, texts, strict=True):
            turns.append({"role": "user", "content": question})
            turns.append({"role": "assistant", "content": answer})
        row[name] = turns
    row["winner"] = next((_VERDICTS[name] for name in _VERDICTS if values[name] in _YES), None)
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


def _up_to(turn: Any, conversation: Any) -> Any:
    """Return a conversation's messages up to the answer number `turn`, counted from 1."""
    if not isinstance(turn, int) or not isinstance(conversation, list):
        return conversation
    answers = 0
    for number, message in enumerate(conversation, 1):
        answers += isinstance(message, Mapping) and message.get("role") == "assistant"
        if answers == turn:
            return conversation[:number]
    return conversation
