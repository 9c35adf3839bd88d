"""An audit's rows: prompts with their references, responses and people's labels."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rmrl.audit.subject import Case
from rmrl.config.schema.audit import AuditConfig
from rmrl.data.json_text import first_text, reference_value
from rmrl.data.responses import AnsweredRow, CountTokens, answered_rows
from rmrl.evaluation.labels import response_labels
from rmrl.types import Prompt

_MOST_READ = 5000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One prompt."""

    prompt: Prompt
    responses: tuple[str, ...]
    labels: tuple[bool | None, ...]
    """Of each response. None: not labelled."""

    @property
    def reference(self) -> str:
        """The reference as the row has it, "" without one."""
        return self.prompt.ground_truth or ""

    @cached_property
    def answer(self) -> str:
        """The reference without its solution: GSM8K's stands after "####". Of a list the first."""
        text = first_text(reference_value(self.prompt.ground_truth))
        return text.rpartition("####")[2].strip()

    def case(self, text: str) -> Case:
        """Return a response to this prompt."""
        return Case(self.prompt, text)

    def first(self, label: bool) -> str | None:
        """Return the first response with this label."""
        labelled = zip(self.responses, self.labels, strict=True)
        return next((text for text, each in labelled if each is label), None)


def read_rows(config: AuditConfig, count_tokens: CountTokens | None) -> list[Row]:
    """Return the file's prompts, those with equal ones joined, in an order drawn by
    audit.seed. Raises DataError as `answered_rows` and `response_labels` do."""
    rows: dict[tuple[str, str | None], Row] = {}
    for number, read in enumerate(answered_rows(config.data, count_tokens=count_tokens)):
        if number >= _MOST_READ:
            break
        key = (str(read.prompt.messages), read.prompt.ground_truth)
        new = _row(read, config)
        if key in rows:
            old = rows[key]
            new = replace(
                old,
                responses=(*old.responses, *new.responses),
                labels=(*old.labels, *new.labels),
            )
        rows[key] = new
    drawn = list(rows.values())
    random.Random(config.audit.seed).shuffle(drawn)
    return drawn


def _row(read: AnsweredRow, config: AuditConfig) -> Row:
    labels: tuple[bool | None, ...] = (None,) * len(read.texts)
    if config.audit.label is not None:
        labels = response_labels(read, config.audit.label, config.audit.good_from, section="audit")
    return Row(prompt=read.prompt, responses=read.texts, labels=labels)


def has_labels(rows: Iterable[Row]) -> bool:
    """Return whether any response is labelled."""
    return any(label is not None for row in rows for label in row.labels)


def other_answer(rows: Sequence[Row], position: int) -> str:
    """Return a wrong answer to a row: the next row's that differs, else the number above."""
    answer = rows[position].answer
    for step in range(1, len(rows)):
        other = rows[(position + step) % len(rows)].answer
        if other and other.casefold() != answer.casefold():
            return other
    return f"{answer}1"
