"""What the wires of other trainers share: rows of `rmrl score` made of their fields, and rewards
for clients that need a number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import StrictFloat, StrictInt, StrictStr

from rmrl.data.column_names import column_names
from rmrl.data.trainer_rows import row_of as trainer_row
from rmrl.serve.problems import RequestError
from rmrl.serve.scored import ScoredRow
from rmrl.serve.service import Service

_PLACE = re.compile(r"rows(?:(\[\d+\])(?:\.(\w+))?)?")

Label = StrictStr | StrictInt | StrictFloat | list[Any] | dict[str, Any] | None
"""A reference answer as the client sent it: 4 stays an integer, and true is refused."""

GROUND_TRUTH = "ground_truth"


def row_of(
    service: Service,
    prompt: Any,
    response: Any,
    *,
    ground_truth: Any = None,
    columns: Mapping[str, Any] | None = None,
    before: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return a row under the names that the configuration gives its columns. `columns`: further
    ones, which give way to these; rules find them in extra_info too, as in the adapters.
    `before`: the completion's turns before the response, as there."""
    names = column_names(service.checked.scoring.config.data)
    further = dict(columns or {})
    if ground_truth is not None:
        further[GROUND_TRUTH] = ground_truth
    row = {**further, **trainer_row(prompt, response, further, before=before)}
    row.pop("responses", None)  # the column of several responses
    values = {**row, "reference": row.get(GROUND_TRUTH), "response": response}
    for name in names.paths:
        row[names.at(name)] = values.get(name)
    return row


async def scored_rows(
    service: Service,
    rows: Sequence[Mapping[str, Any]],
    *,
    places: Mapping[str, str],
    empty_prompts: bool = False,
) -> Sequence[ScoredRow]:
    """Score rows that have one response each.

    `places`: column of a row -> its place in the body, {} being the row's number, e.g.
    {"prompt": "prompts[{}]"}; "" is the place of other columns, and without its number that of all
    rows. `empty_prompts`: see `Service.score`. Raises RequestError naming that place.
    """
    try:
        scored = await service.score(rows, empty_prompts=empty_prompts)
    except RequestError as error:
        match = _PLACE.fullmatch(error.field or "")
        if match is None:
            raise
        pattern = places.get(match[2] or "", places[""])
        place = pattern.replace("[{}]", match[1] or "") or "body"
        raise RequestError(
            error.status,
            error.message,
            field=place,
            retry_after_s=error.retry_after_s,
        ) from error
    return scored.rows


def reward_of(row: ScoredRow, service: Service) -> float | None:
    """Return the row's reward; where it has none serve.missing_reward, which is None unless the
    user has set a number."""
    reward: float | None = row.columns["reward"]
    return service.settings.missing_reward if reward is None else reward


def without_verdict(row: ScoredRow, names: Sequence[str]) -> dict[str, str]:
    """Return the components that gave no verdict, and why: their statuses with what they say."""
    reasons: dict[str, str] = {}
    for name in names:
        if row.columns[f"score_{name}"] is None:
            status = str(row.columns[f"status_{name}"])
            detail = str(row.columns[f"detail_{name}"])
            reasons[name] = f"{status}: {detail}" if detail else status
    return reasons
