"""Scored samples of one step as a table, for trackers that show one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.types import Response, RewardBatch

ROWS = 16
"""Greatest number of rows per step."""

_PROMPT_CHARACTERS = 1000
_RESPONSE_CHARACTERS = 2000
_DETAIL_CHARACTERS = 500
_REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class SampleTable:
    """Rows of one step. The columns are the same in every step of a run."""

    columns: tuple[str, ...]
    """step, prompt_id, prompt, response, reference, reward, and for each component its score as
    <name>, <name>/status and <name>/detail (the reason or remark, else the judge's output)."""
    rows: tuple[tuple[str | float | int | None, ...], ...]
    """None where a sample has no reference, no verdict or no reward."""

    def records(self) -> list[dict[str, Any]]:
        """The rows by the column's name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def sample_table(
    step: int, responses: Sequence[Response], rewards: RewardBatch, *, first: int
) -> SampleTable:
    """Table of at most ROWS consecutive responses from place `first` on, continued at the start
    where they end; consecutive ones answer the same prompt. Long texts lose their middle, prompts
    their start."""
    columns = ["step", "prompt_id", "prompt", "response", "reference", "reward"]
    for name in rewards.scores.names:
        columns += [name, f"{name}/status", f"{name}/detail"]
    rows: list[tuple[Any, ...]] = []
    for offset in range(min(ROWS, len(responses))):
        row = (first + offset) % len(responses)
        rows.append((step, *_cells(responses[row], rewards, row)))
    return SampleTable(tuple(columns), tuple(rows))


def _cells(response: Response, rewards: RewardBatch, row: int) -> list[Any]:
    prompt = response.prompt
    question = "\n".join(str(message["content"]) for message in prompt.messages)
    if len(question) > _PROMPT_CHARACTERS:
        # The end of a prompt has the question.
        cut = len(question) - _PROMPT_CHARACTERS
        question = f"({cut} characters) ... {question[-_PROMPT_CHARACTERS:]}"
    reference = None
    if prompt.ground_truth is not None:
        reference = _shortened(str(prompt.ground_truth), _DETAIL_CHARACTERS)
    reward = float(rewards.rewards_B[row])
    cells: list[Any] = [
        _printable(prompt.id),
        _printable(question),
        _shortened(response.text, _RESPONSE_CHARACTERS),
        reference,
        reward if rewards.keep_B[row] and math.isfinite(reward) else None,
    ]
    for column in rewards.scores.results:
        result = column[row]
        text = result.detail or result.raw_text
        cells += [result.value, result.status, _shortened(text, _DETAIL_CHARACTERS)]
    return cells


def _shortened(text: str, limit: int) -> str:
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} ... ({len(text) - 2 * half} characters) ... {text[-half:]}"
    return _printable(text)


def _printable(text: str) -> str:
    """Replace characters that databases refuse or displays obey: lone surrogates, controls."""
    return _REFUSED.sub("\ufffd", text)
