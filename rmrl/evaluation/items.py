"""A benchmark's items, whatever its layout, with the right choices in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmrl.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One choice among some of an item's responses."""

    subset: str
    candidates: tuple[int, ...]
    """Numbers of the responses that are compared, from 0."""
    good: frozenset[int]
    """The right choices among the candidates. Empty where the label is a tie."""
    every: bool = False
    """Every good response must score higher than every other response, not only the best good
    one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One benchmark row. A benchmark labels choices, absolute values or steps."""

    id: str
    subset: str
    prompt: str | tuple[Message, ...]
    responses: tuple[str, ...]
    """The texts. "" where only recorded verdicts are at hand."""
    conversations: tuple[str | Sequence[Mapping[str, Any]], ...] = ()
    """Each response as the messages that rewards read in the place of its text. () without."""
    comparisons: tuple[Comparison, ...] = ()
    right: frozenset[int] | None = None
    """Numbers of all right responses, where the comparisons do not name each. None: they do."""
    values: tuple[float, ...] = ()
    """People's score for each response. () without."""
    votes: tuple[frozenset[int], ...] = ()
    """Several people's votes: the response that each prefers, all responses for a tie."""
    answers: tuple[str, ...] = ()
    """Each response's final answer, for the control "majority". () without."""
    steps: tuple[str, ...] = ()
    """The only response's steps. () without step labels."""
    first_wrong: int | None = None
    """Number of the first wrong step, from 0. -1 where no step is wrong. None without such a
    label."""
    ground_truth: str | None = None
    data_source: str = ""
    extra_info: Mapping[str, Any] = field(default_factory=dict)
