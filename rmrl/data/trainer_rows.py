"""Rows from the columns that other trainers hand over, in their process or over HTTP: one form for
adapters and wires, so that a rule sees the same in both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

REFERENCES = ("ground_truth", "answer", "solution")
"""Columns that hold the reference answer, in the order in which they are looked for."""


def row_of(
    prompt: Any,
    response: str,
    columns: Mapping[str, Any],
    *,
    tokens: int | None = None,
    before: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return a row with one response.

    `before`: the completion's turns before the response. None: it is no conversation. They become
    part of the row's prompt, where a transcript finds them, and the group stays the prompt's.

    `columns`: data_source, rm_prompt, rm_prompt_<name> and extra_info keep their meaning. The first
    column in REFERENCES that is there is the reference. All columns are entries of extra_info,
    where rules find them. An entry that extra_info has itself stays. `tokens`: the response's
    length.
    """
    row: dict[str, Any] = {"prompt": prompt, "response": response}
    if before is not None:
        row["prompt_id"] = json.dumps(prompt, sort_keys=True, default=str)
    if before:
        first = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        row["prompt"] = [*first, *before]
    extra: dict[str, Any] = {}
    own: Mapping[str, Any] = {}
    for name, value in columns.items():
        if name == "data_source" or name.startswith("rm_prompt"):
            row[name] = value
        elif name == "extra_info" and isinstance(value, Mapping):
            own = value
        elif name not in REFERENCES:
            extra[name] = value
    for name in REFERENCES:
        if columns.get(name) is not None and "ground_truth" not in row:
            row["ground_truth"] = columns[name]
        elif columns.get(name) is not None:
            extra[name] = columns[name]
    row["extra_info"] = {**extra, **own}
    if tokens is not None:
        row["response_tokens"] = tokens
    return row
