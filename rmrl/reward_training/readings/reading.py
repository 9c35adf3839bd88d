"""What an objective trains: which tokens a row has, where its outputs are read, and which reward
reads the trained model later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rmrl.reward_training.example import Example

if TYPE_CHECKING:
    from rmrl.reward_training.labelled_batch import Item


@dataclass(frozen=True, slots=True)
class Row:
    """One row in an example, as tokens."""

    tokens: np.ndarray
    """int32."""
    positions: tuple[int, ...]
    """Tokens where the output is read, in order."""


class Reading:
    """One way to read. Its class extends this one."""

    role: ClassVar[Literal["actor", "critic"]] = "critic"
    """critic: the outputs are those of a new head. actor: log-probabilities of the tokens."""
    model_class: ClassVar[str] = "AutoModelForSequenceClassification"
    """The saved model's class in transformers."""
    pipeline: ClassVar[str] = "text-classification"
    """Its task, as model hubs name it."""
    ensembles: ClassVar[bool] = True
    """Whether adapters of several seeds can be one ensemble."""
    exact: ClassVar[float] = 1e-5
    """Largest difference between two engines' scores in float32."""
    half: ClassVar[float] = 0.02
    """The same in half precision: 8 bits, and sums in another order."""
    merged_only: ClassVar[frozenset[str]] = frozenset()
    """Engines that cannot load a LoRA of such a model beside its base."""
    usage: ClassVar[str]
    """Python that reads the saved model with transformers alone, for its card."""

    def __init__(self, outputs: Sequence[str], weights: Mapping[str, float]) -> None:
        """`outputs`: names for the head's outputs. `weights`: theirs in a score, {} for one."""
        self._outputs = tuple(outputs)
        self._weights = weights

    def rows(self, examples: Sequence[Example], tokenizer: Any) -> list[list[Row]]:
        """Return each example's rows, tokenized as the reward will read the same texts. Raises
        DataError for labels that do not fit the text."""
        raise NotImplementedError

    def outputs(self, values_Nn: np.ndarray) -> list[float]:
        """Return a row's outputs as numbers; `values_Nn`: those at its positions."""
        return values_Nn[-1].tolist()

    def scores(self, outputs: Sequence[Sequence[float]]) -> list[float]:
        """Return how the reward rates an example's rows: a score for each response."""
        raise NotImplementedError

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """Return further columns that the reward reads."""
        del examples
        return {}

    def reward_spec(self, path: str, examples: Sequence[Example]) -> dict[str, Any]:
        """Return the entries for a reward that scores with the saved model."""
        raise NotImplementedError

    def gate_spec(self, path: str) -> dict[str, Any]:
        """Return the reward that the gate scores rows with, which have `columns`."""
        return self.reward_spec(path, [])

    def plain_outputs(self, model: Any, item: Item) -> list[list[float]]:
        """Return each row's outputs from transformers' own model, called as a user calls it."""
        raise NotImplementedError
