"""People's labels, and rewards' scores, in row columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rmrl.config.numbers import is_number
from rmrl.data.column_names import value_at
from rmrl.data.responses import AnsweredRow
from rmrl.errors import DataError
from rmrl.evaluation.formats.fields import json_value
from rmrl.evaluation.read_items import raw_rows

Labels = tuple[bool | None, ...]
"""One label per response in a row. None: no label."""


def labelled_rows(
    files: object, column: str, good_from: float | None, *, max_rows: int = -1
) -> Iterator[tuple[str, Mapping[str, Any], Labels]]:
    """Yield (place for messages, values, labels) for each row, at most `max_rows` (-1: all).
    `column` may lead into a column: "extra_info.label". Rows without the column have no label.

    Raises DataError naming file, row and column for a value that is no label, and as `raw_rows`
    does.
    """
    for place, values in raw_rows(files, "data.files", max_rows=max_rows):
        yield place, values, labels_of(values, column, good_from, place=place)


def labels_of(
    values: Mapping[str, Any],
    column: str,
    good_from: float | None,
    *,
    place: str,
    section: str = "calibrate",
) -> Labels:
    """Return a row's labels, one None where it has none. `good_from`: least good mark. None: labels
    are true or false. `section`: configuration section, for messages.

    Raises DataError for a value that is no label.
    """
    typed = json_value(value_at(values, column))
    listed: Sequence[Any] = (typed,)
    if isinstance(typed, list | tuple):
        listed = typed
    need = f"true or false, 1 or 0; for marks give the least good one: {section}.good_from=..."
    if good_from is not None:
        need = f"a number, good from {good_from:g} on ({section}.good_from)"
    labels: list[bool | None] = []
    for each in map(json_value, listed):
        if each is None or each == "":
            labels.append(None)
        elif good_from is None and each in (0, 1):
            labels.append(bool(each))
        elif good_from is not None and is_number(each):
            labels.append(each >= good_from)
        else:
            raise DataError(f"{place}, '{column}': saw {each!r:.80}; need {need}")
    return tuple(labels)


def response_labels(
    row: AnsweredRow, column: str, good_from: float | None, *, section: str
) -> Labels:
    """Return the label for each response in a row. Raises DataError as `labels_of` does, and where
    labels and responses differ in number."""
    count = len(row.texts)
    place = row.prompt.id
    labels = labels_of(row.fields, column, good_from, place=place, section=section)
    if labels == (None,):
        return (None,) * count
    if len(labels) != count:
        raise DataError(
            f"{place}, '{column}': saw {len(labels)} labels for {count} responses; need one each"
        )
    return labels


def scored_labels(
    values: Mapping[str, Any], name: str, labels: Labels, *, place: str
) -> list[tuple[float | None, bool | None]]:
    """Return (score, label) for each response in a scored row. None: no verdict, or no label.

    Raises DataError where the row has no scores for the reward, other values, or not as many scores
    as labels. A row without any label may have any number of responses.
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
