"""The responses on which two rewards disagree most, with their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.responses import answered_rows
from rmrl.data.rows import read_rows
from rmrl.evaluation.compare.agreement import places
from rmrl.evaluation.compare.check_comparison import NAMES
from rmrl.evaluation.compare.responses import Responses


def most_disputed(responses: Responses, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return up to `count` responses' positions and how their places differ, second minus first,
    from -1 to 1: the place is the share of all other responses with a lower reward. Largest
    differences first, equal places left out."""
    change_N = places(responses.rewards_AN[1]) - places(responses.rewards_AN[0])
    order = np.argsort(-np.abs(change_N), kind="stable")[:count]
    order = order[change_N[order] != 0]
    return order, change_N[order]


def with_texts(
    responses: Responses,
    count: int,
    *,
    data: ScoreDataConfig,
    scored: Sequence[Path],
    components: Sequence[Sequence[str]],
    characters: int,
) -> list[dict[str, Any]]:
    """Return {id, prompt, response, good, change, a, b} for the most disputed responses. A and b:
    their columns reward, score_<name> and status_<name>. `data`: the rows; `scored`: the same with
    each section's scores, whose names are in `components`."""
    positions, changes = most_disputed(responses, count)
    rows = set(responses.row_N[positions].tolist())
    columns: dict[int, list[Mapping[str, Any]]] = {row: [] for row in rows}
    for path in scored:
        for row in read_rows(path):
            if row.number in rows:
                columns[row.number].append(row.fields)
    texts: dict[int, Any] = {
        answered.number: answered for answered in answered_rows(data) if answered.number in rows
    }
    flips: list[dict[str, Any]] = []
    for position, change in zip(positions.tolist(), changes.tolist(), strict=True):
        number = int(responses.row_N[position])
        place = int(responses.place_N[position])
        answered = texts[number]
        good = responses.good_N[position]
        label = None
        if not np.isnan(good):
            label = bool(good)
        flip: dict[str, Any] = {
            "id": answered.prompt.id,
            "response_number": place,
            "prompt": short(answered.prompts[place].messages[-1]["content"], characters),
            "response": short(answered.texts[place], characters),
            "good": label,
            "change": change,
        }
        for name, fields, names in zip(NAMES, columns[number], components, strict=True):
            flip[name] = scores_at(fields, place, names)
        flips.append(flip)
    return flips


def scores_at(fields: Mapping[str, Any], place: int, names: Sequence[str]) -> dict[str, Any]:
    """Return reward, and score_<name> and status_<name> for `names`, for the response at `place` in
    a scored row. Further columns in that form come from the row as it was read."""
    columns = ["reward"]
    for name in names:
        columns += [f"score_{name}", f"status_{name}"]
    scores: dict[str, Any] = {}
    for column in columns:
        value = fields[column]
        if isinstance(value, list):
            value = value[place]
        scores[column] = value
    return scores


def short(text: str, characters: int) -> str:
    """Return the text, or its beginning and end with how many characters lie between them."""
    if len(text) <= characters:
        return text
    head = characters // 2
    tail = characters - head
    return f"{text[:head]} [... {len(text) - characters} characters ...] {text[len(text) - tail :]}"
