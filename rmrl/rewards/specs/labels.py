"""Scores from a classifier head with several labels: every label's value, and the score that
counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import LabelOutput, ValueOutput
from rmrl.models.label_head import ACTIVATIONS, Activation, LabelHead
from rmrl.registry import did_you_mean

Label = str | int


@dataclass(frozen=True, slots=True)
class LabelReading:
    """Turns a head's logits into its labels' values, and the values into a score."""

    names: tuple[str, ...]
    activation: Activation
    weights: Mapping[str, float]
    """Label -> weight in the score. {}: there is no score, and a drop-in makes it from all
    values."""

    def score(self, output: LabelOutput) -> ValueOutput:
        """Return the weighted sum over the labels that have a weight, with every label's value in
        `extra`. A value is the logit itself (activation none) or a number from 0 to 1.

        The result is a failure where the number of outputs is not the number of labels, and where
        logits are not finite.
        """
        logits = output.logits
        failure = output.failure
        detail = output.detail
        if not failure and len(logits) != len(self.names):
            failure = "provider_error"
            detail = (
                f"the engine gave {len(logits)} values for a sequence, and the model's config.json"
                f" has {len(self.names)} labels ({', '.join(self.names)})"
            )
        elif not failure and not all(map(math.isfinite, logits)):
            failure = "provider_error"
            detail = f"the model gave {', '.join(map(str, logits))}"
        if failure:
            return ValueOutput(math.nan, output.tokens_in, failure=failure, detail=detail)
        values = dict(zip(self.names, activated(logits, self.activation), strict=True))
        total = math.fsum(weight * values[name] for name, weight in self.weights.items())
        return ValueOutput(
            total, output.tokens_in, extra=tuple(values.items()), cached=output.cached
        )

    def __str__(self) -> str:
        """Describe the reading for people, e.g. `0.3 x helpfulness + 0.7 x correctness of 5 labels
        (helpfulness, ...), activation none`."""
        terms: list[str] = [
            name if weight == 1 else f"{weight:g} x {name}" for name, weight in self.weights.items()
        ]
        what = " + ".join(terms) or "what rm_postprocess makes"
        count = "1 label" if len(self.names) == 1 else f"{len(self.names)} labels"
        return f"{what} of {count} ({', '.join(self.names)}), activation {self.activation}"


def activated(logits: Sequence[float], activation: Activation) -> list[float]:
    """Return one value per finite logit: softmax over all, sigmoid of each, or the logits
    themselves."""
    if activation == "none":
        return list(logits)
    if activation == "softmax":
        highest = max(logits)
        weights = [math.exp(logit - highest) for logit in logits]
        total = math.fsum(weights)
        return [weight / total for weight in weights]
    # Written so that neither end overflows.
    values: list[float] = []
    for logit in logits:
        small = math.exp(-abs(logit))
        values.append((1.0 if logit >= 0 else small) / (1 + small))
    return values


def both_problems(label: Label | None, weights: Mapping[Label, float], *, where: str) -> list[str]:
    """Return a sentence where a label and a weighted sum are both given, else []."""
    if label is None or not weights:
        return []
    return [
        f"{where}.label and {where}.label_weights are both given: one label is the score, or a"
        " weighted sum of several; leave one out"
    ]


def reading_of(
    head: LabelHead, label: Label | None, weights: Mapping[Label, float], *, activation: str
) -> LabelReading | None:
    """Return how the head is read. None: as a plain scalar, whose raw logit is the score. A head
    with several labels, none of them named, gives a reading without weights.

    Raises ConfigError for a label that the head does not have, a name that it has twice, a label
    with two weights, and a softmax over one label.
    """
    if len(head.names) == 1 and label is None and not weights and activation == "auto":
        return None
    for name in head.names:
        if head.names.count(name) > 1:
            raise ConfigError(
                f"the config.json of the checkpoint has the label '{name}' twice; give its id2label"
                " names that differ"
            )
    if activation == "softmax" and len(head.names) == 1:
        raise ConfigError("activation=softmax: over a single label it is always 1; use sigmoid")
    chosen: dict[str, float] = {}
    if label is not None:
        chosen[_name_of(label, head)] = 1.0
    for given, weight in weights.items():
        name = _name_of(given, head)
        if name in chosen:
            raise ConfigError(
                f"label_weights has the label '{name}' twice, by its name and by its index"
                f" {head.names.index(name)}: give it once"
            )
        chosen[name] = float(weight)
    if len(head.names) == 1 and not chosen:
        chosen[head.names[0]] = 1.0
    applied: Activation = head.activation
    for choice in ACTIVATIONS:
        if activation == choice:
            applied = choice
    return LabelReading(head.names, applied, chosen)


def _name_of(label: Label, head: LabelHead) -> str:
    """Return the name of a label that is given by its name or, as a number, by its index."""
    if isinstance(label, str) and label in head.names:
        return label
    if isinstance(label, bool):
        raise ConfigError(f"label {label}: neither a name nor an index; quote it, e.g. 'yes'")
    if isinstance(label, int) and 0 <= label < len(head.names):
        return head.names[label]
    if isinstance(label, int):
        raise ConfigError(
            f"label {label}: the labels are numbered 0 to {len(head.names) - 1}"
            f" ({', '.join(head.names)})"
        )
    raise ConfigError(f"label '{label}': not a label{did_you_mean(label, list(head.names))}")
