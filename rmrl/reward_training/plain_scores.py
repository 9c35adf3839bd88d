"""How transformers alone scores with a saved model, which the gate holds the engines against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from rmrl.reward_training.labelled_batch import Item
from rmrl.reward_training.readings.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainScores:
    """How transformers scores with a saved model."""

    outputs: list[list[list[float]]]
    """Per item each row's outputs."""
    lost: list[str]
    """Tensors that the class has and the files lack, or the other way round."""


def plain_scores(
    folder: str, items: Sequence[Item], reading: Reading, *, device: str
) -> PlainScores:
    """Return the outputs with transformers' own class and its own forward method, as a user calls
    them, one at a time."""
    loaded: Any = getattr(transformers, reading.model_class).from_pretrained(
        folder, dtype="auto", output_loading_info=True
    )
    model = loaded[0].eval().to(device)
    with torch.inference_mode():
        outputs = [reading.plain_outputs(model, item) for item in items]
    lost = sorted({*loaded[1]["missing_keys"], *loaded[1]["unexpected_keys"]})
    return PlainScores(outputs=outputs, lost=lost)
