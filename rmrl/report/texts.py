"""The responses on a page: their selection, and their texts, each stored once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmrl.api import Scored
from rmrl.config.numbers import is_number
from rmrl.report.explain import Rules
from rmrl.report.numbers import Numbers

_BEST_SHARE = 4


@dataclass(slots=True)
class Texts:
    """Texts by number. Equal ones share a number. Longer ones than `limit` lose their middle."""

    limit: int
    texts: list[str] = field(default_factory=list)
    _number_of: dict[str, int] = field(default_factory=dict)

    def number(self, text: object) -> int:
        """Return a text's number, other values' as JSON; -1 for None and for ""."""
        if text is None or text == "":
            return -1
        if not isinstance(text, str):
            text = json.dumps(text, ensure_ascii=False, default=str)
        if len(text) > self.limit:
            half = self.limit // 2
            left_out = len(text) - 2 * half
            text = f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
        number = self._number_of.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


@dataclass(slots=True)
class ComponentColumns:
    """One component's verdict columns for the page."""

    name: str
    rules: Rules
    texts: Texts
    columns: dict[str, list[Any]] = field(default_factory=dict)
    """Numbers in score and weight; numbers of texts in the others."""

    def __post_init__(self) -> None:
        for key in ("score", "status", "detail", "weight", "rendered", "raw", "extra"):
            self.columns[key] = []

    def add(self, item: Scored) -> None:
        """Add the verdict on the next response."""
        verdict = item.verdicts.get(self.name, {})
        weight = item.weights.get(self.name, self.rules.weights.get(self.name))
        self.columns["score"].append(short(verdict.get("score")))
        self.columns["weight"].append(short(weight))
        for key in ("status", "detail", "rendered", "raw", "extra"):
            self.columns[key].append(self.texts.number(verdict.get(key) or None))

    def finished(self) -> dict[str, Any]:
        """Return the columns with `value`, the scores behind the transforms; None where these are
        not known."""
        scores_N = np.asarray(self.columns["score"], dtype=np.float64)
        values: list[float | int | None] | None = None
        values_N = self.rules.transformed(self.name, scores_N)
        if values_N is not None:
            values = list(map(short, values_N.tolist()))
        return {**self.columns, "value": values}


def chosen(numbers: Numbers, disputed_N: np.ndarray, *, limit: int) -> np.ndarray:
    """Return at most `limit` responses' positions, ascending: all; or a quarter each from the
    worst, the best and the most disputed, and the rest evenly spread over the file."""
    count = len(numbers)
    if count <= limit:
        return np.arange(count)
    rewards_N = numbers.rewards_N
    by_reward = np.argsort(rewards_N, kind="stable")  # NaN last
    by_reward = by_reward[: int(np.isfinite(rewards_N).sum())]
    quarter = limit // _BEST_SHARE
    extremes = np.concatenate(
        [
            by_reward[:quarter],
            by_reward[max(0, len(by_reward) - quarter) :],
            np.argsort(-disputed_N, kind="stable")[:quarter],
        ]
    )
    chosen_N = np.zeros(count, dtype=bool)
    chosen_N[extremes] = True
    rest = np.flatnonzero(~chosen_N)
    room = limit - int(chosen_N.sum())
    chosen_N[rest[np.linspace(0, len(rest) - 1, room).astype(np.int64)]] = True
    return np.flatnonzero(chosen_N)


def sample_columns(
    items: Iterable[Scored], texts: Texts, rules: Rules, *, names: list[str]
) -> dict[str, Any]:
    """Return the responses' columns for the page: numbers, and numbers of texts."""
    columns: dict[str, Any] = {
        "reward": [],
        "step": [],
        "advantage": [],
        "kept": [],
        "tokens": [],
        "where": [],
        "prompt": [],
        "response": [],
        "reference": [],
        "source": [],
        "finish": [],
    }
    parts = [ComponentColumns(name, rules, texts) for name in names]
    for item in items:
        fields = item.columns
        columns["reward"].append(short(fields.get("reward")))
        columns["step"].append(short(fields.get("step")))
        columns["advantage"].append(short(fields.get("advantage")))
        columns["kept"].append(fields.get("kept") is not False)
        columns["tokens"].append(short(fields.get("response_tokens")))
        columns["where"].append(texts.number(item.where))
        columns["prompt"].append(texts.number(item.prompt))
        columns["response"].append(texts.number(item.response))
        columns["reference"].append(texts.number(item.reference))
        columns["source"].append(texts.number(fields.get("data_source")))
        columns["finish"].append(texts.number(fields.get("finish_reason")))
        for part in parts:
            part.add(item)
    return {**columns, "parts": [part.finished() for part in parts]}


def short(value: Any) -> float | int | None:
    """Return the number with six digits, None for everything else."""
    if not is_number(value):
        return None
    if isinstance(value, int):
        return value
    return float(f"{value:.6g}")
