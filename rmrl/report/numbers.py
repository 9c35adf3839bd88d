"""A source's numbers for all responses, as arrays, for statistics and selections."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmrl.api import Scored

LENGTHS = ("response_tokens",)


@dataclass(slots=True)
class Component:
    """One component's verdicts, a value per response."""

    scores: array[float] = field(default_factory=lambda: array("d"))
    """NaN without a verdict."""
    statuses: list[str] = field(default_factory=list)
    """"" where the row does not have the component."""

    @property
    def scores_N(self) -> np.ndarray:
        return np.asarray(self.scores)

    def add(self, verdict: Mapping[str, Any]) -> None:
        """Add the next response's verdict, {} where the row does not have the component."""
        score = verdict.get("score")
        status = verdict.get("status")
        if not verdict:
            status = ""
        elif not isinstance(status, str) or not status:
            status = "no verdict"
            if score is not None:
                status = "ok"
        self.scores.append(number(score))
        self.statuses.append(status)


@dataclass(slots=True)
class Numbers:
    """Arrays with a value per response, in the file's order."""

    rewards: array[float] = field(default_factory=lambda: array("d"))
    """NaN without a reward."""
    steps: array[float] = field(default_factory=lambda: array("d"))
    """NaN where the row has none."""
    lengths: array[float] = field(default_factory=lambda: array("d"))
    """Tokens of the response, else its characters."""
    in_tokens: bool = True
    """Whether every length is one of tokens."""
    components: dict[str, Component] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def rewards_N(self) -> np.ndarray:
        return np.asarray(self.rewards)

    @property
    def steps_N(self) -> np.ndarray:
        return np.asarray(self.steps)

    @property
    def lengths_N(self) -> np.ndarray:
        return np.asarray(self.lengths)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the reward and each component, float64 [N]."""
        columns = {"reward": self.rewards_N}
        for name, component in self.components.items():
            columns[name] = component.scores_N
        return columns


def gathered(items: Iterable[Scored]) -> Numbers:
    """Return all responses' numbers."""
    numbers = Numbers()
    characters = array("d")
    for item in items:
        count = len(numbers)
        numbers.rewards.append(number(item.columns.get("reward")))
        numbers.steps.append(number(item.columns.get("step")))
        tokens = number(item.columns.get("response_tokens"))
        numbers.in_tokens = numbers.in_tokens and tokens > 0
        numbers.lengths.append(tokens)
        characters.append(len(item.response))
        for name in item.verdicts:
            if name not in numbers.components:
                scores = array("d", [math.nan] * count)
                numbers.components[name] = Component(scores, [""] * count)
        for name, component in numbers.components.items():
            component.add(item.verdicts.get(name, {}))
    if not numbers.in_tokens:
        numbers.lengths = characters
    return numbers


def number(value: Any) -> float:
    """Return a finite float, NaN for everything else."""
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return math.nan
