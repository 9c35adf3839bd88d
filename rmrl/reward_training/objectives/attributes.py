"""Regression on one output per attribute. An attribute that a row lacks has no loss.

    point      (s - y)^2                                            (HelpSteer2, arXiv:2406.08673)
    variance   ((s - y)^2 / v + log v) / 2, log v a second output   (arXiv:2410.00847)
    quantiles  max(q (y - s_q), (q - 1) (y - s_q)), sum over q = .1, .5, .9  (arXiv:2409.10164)

A head with variances has the values first, then the variances' logarithms. One with quantiles has
the medians first, then the lower and the upper ones. So an attribute's first output is its score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, product
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rmrl.config.schema import RewardLossConfig
from rmrl.evaluation.eval_tables import Rows, number
from rmrl.evaluation.measures.people import against_values
from rmrl.reward_training.example import Example
from rmrl.reward_training.held_out import BINS
from rmrl.reward_training.labelled_batch import LabelledBatch
from rmrl.reward_training.objectives.objective import Objective, Outputs, Targets

_FURTHER: Mapping[str, tuple[str, ...]] = {
    "point": (),
    "variance": ("log_variance",),
    "quantiles": ("low", "high"),
}
"""Head -> what it has for each attribute beside the value."""
_QUANTILES = (0.5, 0.1, 0.9)


class AttributeRegression(Objective):
    """A row's targets: a number per attribute, NaN where it has none."""

    forms: ClassVar[tuple[str, ...]] = ("attributes",)
    loss_keys: ClassVar[tuple[str, ...]] = ("head",)
    chosen_by: ClassVar[tuple[str, ...]] = ("loss",)

    @classmethod
    def outputs_of(cls, examples: Sequence[Example], settings: RewardLossConfig) -> tuple[str, ...]:
        """Return the attributes in the order in which they occur, and what the head has beside."""
        names = dict.fromkeys(chain.from_iterable(each.attributes for each in examples))
        further = [f"{name}_{what}" for what, name in product(_FURTHER[settings.head], names)]
        return (*names, *further)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes."""
        return self.outputs[: len(self.outputs) // (1 + len(_FURTHER[self._settings.head]))]

    @property
    def score_weights(self) -> dict[str, float]:
        """A response's score is the mean over its attributes."""
        return {name: 1 / len(self.names) for name in self.names}

    def targets(self, example: Example) -> Targets:
        """Return a number per attribute."""
        return (tuple(example.attributes.get(name, math.nan) for name in self.names),)

    def weight(self, batch: LabelledBatch) -> float:
        """Return how many labels there are."""
        return float((~np.isnan(batch.targets.values)).sum())

    def loss(self, batch: LabelledBatch, outputs_Nn: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum over labels, and the squared errors' sum."""
        labels_Rn = torch.from_numpy(np.stack(batch.targets.rows())).to(outputs_Nn.device)
        present_Rn = ~labels_Rn.isnan()
        labels_Rn = labels_Rn.nan_to_num()
        scores_Rn, *further = outputs_Nn.split(len(self.names), dim=1)
        error_Rn = labels_Rn - scores_Rn
        if self._settings.head == "variance":
            loss_Rn = (error_Rn**2 * torch.exp(-further[0]) + further[0]) / 2
        elif self._settings.head == "quantiles":
            loss_Rn = torch.zeros_like(error_Rn)
            for quantile, each_Rn in zip(_QUANTILES, (scores_Rn, *further), strict=True):
                below_Rn = labels_Rn - each_Rn
                loss_Rn = loss_Rn + torch.maximum(quantile * below_Rn, (quantile - 1) * below_Rn)
        else:
            loss_Rn = error_Rn**2
        with torch.no_grad():
            squared = (error_Rn**2 * present_Rn).sum()
            scores = (scores_Rn * present_Rn).sum()
            sums = {"squared_error": squared, "score": scores}
            sums["score_squared"] = (scores_Rn**2 * present_Rn).sum()
        return (loss_Rn * present_Rn).sum(), sums

    def quick(self, examples: Sequence[Example], outputs: Outputs) -> dict[str, float]:
        """Return the mean squared error, and each attribute's."""
        errors = {name: self._pairs(examples, outputs, name) for name in self.names}
        figures = {
            f"{name}/squared_error": _squared_error(pairs)
            for name, pairs in errors.items()
            if pairs
        }
        everything = list(chain.from_iterable(errors.values()))
        return {"loss": _squared_error(everything), **figures}

    def report(
        self,
        train: Sequence[Example],
        held_out: Sequence[Example],
        outputs: Mapping[str, Outputs],
        *,
        seed: int,
    ) -> dict[str, Any]:
        """Return for each judge and attribute the error and the correlations. The training labels'
        mean and the response's length are judges as well."""
        del seed
        labels = np.asarray([self.targets(each)[0] for each in train])
        constant = [[np.nanmean(labels, axis=0).tolist()]] * len(held_out)
        lengths = [[[float(len(each.responses[0]))] * len(self.names)] for each in held_out]
        judges: dict[str, Outputs] = {**outputs, "mean of the labels": constant, "length": lengths}
        report: dict[str, Any] = {}
        for judge, values in judges.items():
            report[judge] = {}
            for name in self.names:
                pairs = self._pairs(held_out, values, name)
                scores = [score for score, _ in pairs]
                labels = [label for _, label in pairs]
                figures = against_values(scores, labels, bins=BINS) if pairs else {}
                # Characters are on another scale.
                compares = bool(pairs) and judge != "length"
                error = _squared_error(pairs) if compares else None
                report[judge][name] = {**figures, "squared_error": error}
        return report

    def table(self, judges: Mapping[str, Any]) -> Rows:
        """Return a line per judge and attribute."""
        rows = [["held-out labels", "attribute", "squared error", "pearson", "spearman"]]
        for judge, attributes in judges.items():
            for name, figures in attributes.items():
                cells = [figures.get(each) for each in ("squared_error", "pearson", "spearman")]
                rows.append([judge, name, *map(number, cells)])
        return rows

    def _pairs(
        self, examples: Sequence[Example], outputs: Outputs, name: str
    ) -> list[tuple[float, float]]:
        """Return (score, label) for every row that has the attribute."""
        place = self.names.index(name)
        return [
            (values[0][place], example.attributes[name])
            for example, values in zip(examples, outputs, strict=True)
            if name in example.attributes
        ]


def _squared_error(pairs: Sequence[tuple[float, float]]) -> float:
    return float(np.mean([(score - label) ** 2 for score, label in pairs]))
