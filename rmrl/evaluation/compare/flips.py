"""The responses on which two rewards disagree most, with their texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.responses import answered_rows
from rmrl.data.rows import read_rows
from rmrl.evaluation.compare.agreement import places
from rmrl.evaluation.compare.check import NAMES
from rmrl.evaluation.compare.responses import Responses


def most_disputed(responses: Responses, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of up to `count` responses and the difference of their places, second minus
    first, from -1 to 1: the place is the share of all other responses with a lower reward. Largest
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
    characters: int,
) -> list[dict[str, Any]]:
    """Return {id, prompt, response, good, change, a, b} of the most disputed responses; a and b:
    their columns reward, score_<name> and status_<name>. `data`: how the rows are read."""
    positions, changes = most_disputed(responses, count)
    rows = set(responses.row_N[positions].tolist())
    columns: dict[int, list[Mapping[str, Any]]] = {row: [] for row in rows}
    for path in scored:
        for row in read_rows(path):
            if row.number in rows:
                columns[row.number].append(row.fields)
    texts: dict[int, Any] = {}
    settings = dataclasses.replace(data, files=str(scored[0]), max_rows=-1, on_bad_row="fail")
    for answered in answered_rows(settings):
        if answered.number in rows:
            texts[answered.number] = answered
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
            "prompt": short(answered.prompt.messages[-1]["content"], characters),
            "response": short(answered.texts[place], characters),
            "good": label,
            "change": change,
        }
        for name, fields in zip(NAMES, columns[number], strict=True):
            flip[name] = scores_at(fields, place)
        flips.append(flip)
    return flips


def scores_at(fields: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return reward, score_<name> and status_<name> of the response at `place` of a scored row."""
    scores: dict[str, Any] = {}
    for name, value in fields.items():
        if name != "reward" and not name.startswith(("score_", "status_")):
            continue
        if isinstance(value, list):
            scores[name] = value[place]
        else:
            scores[name] = value
    return scores


def short(text: str, characters: int) -> str:
    """Return the text, or its beginning and end with the number of characters between them."""
    if len(text) <= characters:
        return text
    head = characters // 2
    tail = characters - head
    return f"{text[:head]} [... {len(text) - characters} characters ...] {text[len(text) - tail :]}"
