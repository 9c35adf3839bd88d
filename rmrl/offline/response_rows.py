"""Converts files' rows to rows that rewards score, one per response."""

from __future__ import annotations

from collections.abc import Sequence

from rmrl.data.responses import AnsweredRow
from rmrl.rewards.session.items import ResponseRow


def response_rows(batch: Sequence[AnsweredRow]) -> list[ResponseRow]:
    """Return one row per response; groups are numbered within the batch."""
    number_of: dict[bytes, int] = {}
    rows = []
    for row in batch:
        group = number_of.setdefault(row.group, len(number_of))
        responses = zip(row.prompts, row.texts, row.finish_reasons, row.tokens, strict=True)
        for prompt, text, reason, tokens in responses:
            rows.append(
                ResponseRow(
                    prompt=prompt,
                    text=text,
                    finish_reason=reason,
                    tokens=tokens,
                    group=group,
                    group_key=row.group,
                )
            )
    return rows
