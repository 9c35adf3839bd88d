"""Shared by the catalogue's drop-ins: prompts with a reference, and verdicts by pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rmrl.rewards.judging.parser import Parser
from rmrl.rewards.kinds.judge.asking import conversation_text, fill
from rmrl.types import Messages

_BEFORE = r"(?<!\b(?:or|not)[^\w\n]{0,9})"
"""In front of a verdict: one that is named as an alternative, or denied, is none."""
_END = r"""[\s.!*_#`'"$\\)\]}]*\Z"""
"""Behind a verdict: white space, punctuation and marks of Markdown and LaTeX, up to the end."""


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
    """A prompt as turns with role and content. A string is one user turn."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": str(turn["role"]), "content": str(turn["content"])} for turn in prompt]


def question_of(prompt: str | Messages) -> str:
    """A prompt as one text."""
    return conversation_text(prompt)


def reference_prompts(
    template: str,
    rows: Iterable[tuple[str | Messages, str, object]],
    *,
    question: str,
    response: str,
    reference: str,
) -> list[str]:
    """The prompt for a model that compares a response with a reference, for each row: (prompt,
    response, ground truth). The keywords are the template's names of the three. Raises ValueError
    for a row without a reference."""
    texts: list[str] = []
    for prompt, written, truth in rows:
        values = {
            question: question_of(prompt),
            response: written,
            reference: reference_of(truth),
        }
        texts.append(fill(template, values))
    return texts


def verdicts(
    texts: Sequence[str],
    responses: Sequence[str | Sequence[str]],
    pattern: str,
    values: Mapping[str, float],
) -> list[float | None]:
    """For each text the value by `pattern`'s match that ends it, whose group `score` is looked up
    in `values` regardless of case and white space; None without such a match, or with one that has
    no value. A verdict that more words follow is none: they may take it back, and a text that the
    token limit broke off may have quoted one on its way to its own.

    `responses`: what was judged. A copied one counts less than the judge's own words.
    """
    parser = Parser(f"{_BEFORE}(?:{pattern}){_END}", "score")
    known = {key.lower(): value for key, value in values.items()}
    scores: list[float | None] = []
    for text, response in zip(texts, responses, strict=True):
        judged = response if isinstance(response, str) else "\n".join(response)
        verdict = parser.read(text, response=judged).verdict
        scores.append(None if verdict is None else known.get("".join(verdict.lower().split())))
    return scores
