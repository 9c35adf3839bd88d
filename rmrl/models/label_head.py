"""A classifier head's labels, and the function that its outputs pass through: both from
config.json, no weight is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rmrl.models.checkpoint_inspect import label_count, read_config

Activation = Literal["softmax", "sigmoid", "none"]
ACTIVATIONS: tuple[Activation, ...] = ("softmax", "sigmoid", "none")


@dataclass(frozen=True, slots=True)
class LabelHead:
    """A head with one output for each label."""

    names: tuple[str, ...]
    """In the outputs' order; `LABEL_0`, `LABEL_1`, ... where config.json has no names."""
    problem_type: str = ""
    """Entry of config.json: "regression", "single_label_classification",
    "multi_label_classification", or "" where it is not stated."""

    @property
    def activation(self) -> Activation:
        """The function that transformers' text-classification pipeline applies by default.

        Source: TextClassificationPipeline.postprocess in
        transformers/pipelines/text_classification.py (4.57 and 5.19 agree): none for regression;
        sigmoid for multi_label_classification or one label; else softmax.
        """
        if self.problem_type == "regression":
            return "none"
        if self.problem_type == "multi_label_classification" or len(self.names) == 1:
            return "sigmoid"
        return "softmax"


def label_head(path: str | Path) -> LabelHead:
    """A checkpoint's labels. Raises ConfigError where its config.json cannot be read."""
    config = read_config(path)
    stated: dict[str, Any] = config.get("id2label") or {}
    names: list[str] = [
        str(stated.get(str(number), f"LABEL_{number}")) for number in range(label_count(config))
    ]
    return LabelHead(tuple(names), str(config.get("problem_type") or ""))
