"""How transformers alone scores with a saved model, which the gate holds the engines against."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
    """Per item each row's outputs: in float32, as long as that fits on the device."""
    rounded: list[list[list[float]]] | None
    """The outputs in the half precision of the files. None where these are not in half precision,
    or float32 does not fit."""
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
    lost = sorted({*loaded[1]["missing_keys"], *loaded[1]["unexpected_keys"]})
    is_half = model.dtype in (torch.bfloat16, torch.float16)

    def outputs() -> list[list[list[float]]]:
        with torch.inference_mode():
            return [reading.plain_outputs(model, item) for item in items]

    first = outputs()
    if is_half:
        with suppress(torch.OutOfMemoryError):
            model.float()
            return PlainScores(outputs=outputs(), rounded=first, lost=lost)
    return PlainScores(outputs=first, rounded=None, lost=lost)
