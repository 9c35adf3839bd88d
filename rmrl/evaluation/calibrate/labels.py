"""People's labels, and the scores of rewards, in the columns of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rmrl.config.numbers import is_number
from rmrl.errors import DataError
from rmrl.evaluation.formats.fields import json_value, value_at
from rmrl.evaluation.read_items import raw_rows

Labels = tuple[bool | None, ...]
"""One per response of a row; None: no label."""


def labelled_rows(
    files: object, column: str, good_from: float | None, *, max_rows: int = -1
) -> Iterator[tuple[str, Mapping[str, Any], Labels]]:
    """Yield (place for messages, values, labels) of each row, at most `max_rows` (-1: all).
    `column` may lead into a column: "extra_info.label". Rows without it have no label.

    Raises DataError naming file, row and column for what is no label, and as `raw_rows` does.
    """
    most = None
    if max_rows >= 0:
        most = max_rows
    for place, values in islice(raw_rows(files, "data.files"), most):
        typed = json_value(value_at(values, column))
        listed: Sequence[Any] = (typed,)
        if isinstance(typed, list | tuple):
            listed = typed
        labels: list[bool | None] = []
        for each in listed:
            labels.append(_label(each, good_from, f"{place}, '{column}'"))
        yield place, values, tuple(labels)


def _label(value: Any, good_from: float | None, place: str) -> bool | None:
    """Return the label that a value states; None for null and for an empty cell."""
    value = json_value(value)
    if value is None or value == "":
        return None
    if good_from is None and value in (0, 1):
        return bool(value)
    if good_from is not None and is_number(value):
        return value >= good_from
    need = "true or false, 1 or 0; for marks give the least good one: calibrate.good_from=..."
    if good_from is not None:
        need = f"a number, good from {good_from:g} on (calibrate.good_from)"
    raise DataError(f"{place}: saw {value!r:.80}; need {need}")


def scored_labels(
    values: Mapping[str, Any], name: str, labels: Labels, *, place: str
) -> list[tuple[float | None, bool | None]]:
    """Return (score, label) of each response of a scored row; None: no verdict, or no label.

    Raises DataError where the row has no scores of the reward, other values, or another number of
    them than of labels; a row without any label may have any number of responses.
    """
    column = f"score_{name}"
    if column not in values:
        columns = ", ".join(map(str, values)) or "(none)"
        raise DataError(
            f"{place}: saw only the columns {columns}; need '{column}', as rmrl score writes it;"
            " give the reward the name it had there, or leave calibrate.scored out to score the"
            " rows now"
        )
    typed = json_value(values[column])
    scores: Sequence[Any] = (typed,)
    if isinstance(typed, list | tuple):
        scores = typed
    if labels == (None,):
        labels = (None,) * len(scores)
    if len(scores) != len(labels):
        raise DataError(
            f"{place}: saw {len(labels)} labels and {len(scores)} scores in '{column}'; need a"
            " label per response"
        )
    pairs: list[tuple[float | None, bool | None]] = []
    for score, label in zip(scores, labels, strict=True):
        if score is None or score == "":
            pairs.append((None, label))
        elif is_number(score):
            pairs.append((float(score), label))
        else:
            raise DataError(f"{place}, '{column}': saw {score!r:.80}; need a number or null")
    return pairs
