"""Shared by the drop-ins of the catalogue: a row's reference, and verdicts by pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rmrl.rewards.judging.asking import conversation_text
from rmrl.rewards.judging.parser import Parser
from rmrl.types import Messages


def prompt_file(family: str) -> str:
    """The family's prompt word for word: its text file without the newline that ends the file.
    `family`: `__file__` of its module."""
    return Path(family).with_suffix(".txt").read_text(encoding="utf-8").removesuffix("\n")


def reference_of(truth: object) -> str:
    """The row's reference answer. Raises ValueError where there is none: the row has a
    `user_error`."""
    if truth is None or not str(truth).strip():
        raise ValueError(
            "the row has no reference answer (ground_truth), and this model compares with one"
        )
    return str(truth)


def turns_of(prompt: str | Messages) -> list[dict[str, str]]:
    """A prompt as turns with role and content; a string is one user turn."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": str(turn["role"]), "content": str(turn["content"])} for turn in prompt]


def question_of(prompt: str | Messages) -> str:
    """A prompt as one text."""
    return conversation_text(prompt)


def verdicts(
    texts: Sequence[str],
    responses: Sequence[str | Sequence[str]],
    pattern: str,
    values: Mapping[str, float],
) -> list[float | None]:
    """For each text the value of the last match of `pattern`, whose group `score` is looked up in
    `values` regardless of case; None without a match, or with one that has no value.

    `responses`: what was judged; a copy of it counts less than the judge's own words.
    """
    parser = Parser(pattern, "score")
    known = {key.lower(): value for key, value in values.items()}
    scores: list[float | None] = []
    for text, response in zip(texts, responses, strict=True):
        judged = response if isinstance(response, str) else "\n".join(response)
        verdict = parser.read(text, response=judged).verdict
        scores.append(None if verdict is None else known.get(verdict.strip().lower()))
    return scores
