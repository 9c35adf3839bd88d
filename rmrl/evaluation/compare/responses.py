"""Two sections' rewards, response by response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.schema import CompareConfig
from rmrl.data.responses import AnsweredRow, answered_rows
from rmrl.data.rows import read_rows
from rmrl.errors import DataError
from rmrl.evaluation.labels import response_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """N responses in the rows' order, with A sections' rewards (here two)."""

    rewards_AN: np.ndarray
    """float64. NaN: no reward."""
    prompt_N: np.ndarray
    """int64, number of the prompt: equal for responses that are compared with each other."""
    good_N: np.ndarray
    """float64: 1 good, 0 bad, NaN without a label."""
    row_N: np.ndarray
    """int64, position of the row."""
    place_N: np.ndarray
    """int64, position of the response in its row."""

    def __len__(self) -> int:
        return len(self.prompt_N)

    def with_rewards(self) -> Responses:
        """Return the responses that have every reward."""
        return self.select(~np.isnan(self.rewards_AN.sum(axis=0)))

    def select(self, index: np.ndarray) -> Responses:
        """Return the responses at `index`, numbers or bool."""
        return Responses(
            rewards_AN=self.rewards_AN[:, index],
            prompt_N=self.prompt_N[index],
            good_N=self.good_N[index],
            row_N=self.row_N[index],
            place_N=self.place_N[index],
        )


def read_responses(config: CompareConfig, scored: Sequence[Path]) -> Responses:
    """Read the rows in `data.files`, and their rewards from the scored files. Memory: 48 bytes per
    response and 100 per prompt.

    Raises DataError where the files have different rows, or labels do not fit the responses.
    """
    rewards: list[list[float]] = [[] for _ in scored]
    prompts: list[int] = []
    labels: list[float] = []
    rows: list[int] = []
    places: list[int] = []
    number_of: dict[bytes, int] = {}
    others = zip_longest(*map(read_rows, scored))
    # The scored files hold the cells of a csv file as texts, so prompts, responses and labels are
    # those of the rows themselves.
    for row, both in zip_longest(answered_rows(config.data), others):
        if row is None or both is None or None in both:
            raise _other_rows(", ".join(map(str, scored)))
        prompt = number_of.setdefault(row.group, len(number_of))
        count = len(row.texts)
        for column, each in zip(rewards, both, strict=True):
            column += _numbers(each.fields["reward"], count, str(each.file))
        prompts += [prompt] * count
        labels += _labels(row, config)
        rows += [row.number] * count
        places += range(count)
    return Responses(
        rewards_AN=np.asarray(rewards, dtype=np.float64),
        prompt_N=np.asarray(prompts, dtype=np.int64),
        good_N=np.asarray(labels, dtype=np.float64),
        row_N=np.asarray(rows, dtype=np.int64),
        place_N=np.asarray(places, dtype=np.int64),
    )


def _numbers(value: Any, count: int, file: str) -> list[float]:
    """Return a row's rewards with NaN for null. Raises DataError if there are more or fewer."""
    values = value
    if not isinstance(value, list):
        values = [value]
    if len(values) != count:
        raise _other_rows(file)
    numbers: list[float] = []
    for each in values:
        if each is None:
            numbers.append(np.nan)
        else:
            numbers.append(float(each))
    return numbers


def _other_rows(file: str) -> DataError:
    return DataError(f"{file}: saw other rows than those of data.files; score with overwrite=true")


def _labels(row: AnsweredRow, config: CompareConfig) -> list[float]:
    column = config.compare.label
    if column is None:
        return [np.nan] * len(row.texts)
    labels = response_labels(row, column, config.compare.good_from, section="compare")
    numbers: list[float] = []
    for label in labels:
        if label is None:
            numbers.append(np.nan)
        else:
            numbers.append(float(label))
    return numbers
