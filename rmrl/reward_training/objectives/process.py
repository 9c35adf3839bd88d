"""Process: each step in a response has a probability to be right, read at its last token.

    loss = mean over the labelled steps of  -y log p - (1 - y) log(1 - p),    p = sigmoid(s)

with the step's logit s and its label y, 0, 1 or between (arXiv:2305.20050 section 2.4; soft labels
from rollouts arXiv:2312.08935 section 3.3). A step without a label has no loss.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rmrl.evaluation.eval_tables import Rows, number
from rmrl.evaluation.formats.processbench import SEPARATOR
from rmrl.evaluation.measures.calibration import curve
from rmrl.evaluation.measures.shares import share
from rmrl.reward_training.example import Example
from rmrl.reward_training.held_out import BINS, CONFIDENCE, with_interval
from rmrl.reward_training.labelled_batch import LabelledBatch
from rmrl.reward_training.objectives.objective import Objective, Outputs, Targets
from rmrl.reward_training.readings.reading import Reading
from rmrl.reward_training.readings.step_ends import StepEnds
from rmrl.reward_training.text_baseline import class_probabilities

_NEAR_CERTAIN = 1e-3
"""A share among the labels is kept this far from 0 and 1, to have a logit."""


class Process(Objective):
    """A row's targets: a label per step, NaN where it is not known."""

    forms: ClassVar[tuple[str, ...]] = (
        "steps",
        "processbench",
        "math_shepherd",
        "prm800k",
        "rlhflow",
    )
    reads: ClassVar[type[Reading]] = StepEnds
    chosen_by: ClassVar[tuple[str, ...]] = ("loss", "accuracy")

    def targets(self, example: Example) -> Targets:
        """Return the steps' labels."""
        return (example.step_labels,)

    def weight(self, batch: LabelledBatch) -> float:
        """Return how many steps have a label."""
        return float((~np.isnan(_labels(batch))).sum())

    def loss(self, batch: LabelledBatch, outputs_Nn: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum over steps, and sums for accuracy and the scores' spread."""
        logits_N = outputs_Nn[:, 0]
        labels_N = torch.from_numpy(_labels(batch)).to(logits_N.device)
        logits = logits_N[~labels_N.isnan()]
        labels = labels_N[~labels_N.isnan()]
        loss = binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        with torch.no_grad():
            sums = {"accuracy": ((logits > 0) == (labels > 0.5)).float().sum()}
            sums |= {"score": logits.sum(), "score_squared": (logits**2).sum()}
        return loss, sums

    def quick(self, examples: Sequence[Example], outputs: Outputs) -> dict[str, float]:
        """Return the mean loss, the share of steps on the right side of 1/2, and the mean score."""
        logits_N, labels_N = _labelled(examples, outputs)
        if not len(labels_N):
            return {}
        # -y log p - (1 - y) log(1 - p) = log(1 + exp(s)) - y s
        losses_N = np.logaddexp(0, logits_N) - labels_N * logits_N
        return {
            "loss": float(losses_N.mean()),
            "accuracy": float(((logits_N > 0) == (labels_N > 0.5)).mean()),
            "score_mean": float(logits_N.mean()),
        }

    def report(
        self,
        train: Sequence[Example],
        held_out: Sequence[Example],
        outputs: Mapping[str, Outputs],
        *,
        seed: int,
    ) -> dict[str, Any]:
        """Return figures for each judge. The share of right steps in the training rows, overall and
        by the step's place, and a logistic regression on the step's words are judges as well."""
        judges = {**outputs, **_words(train, held_out), **_baselines(train, held_out)}
        return {name: _figures(held_out, each, seed=seed) for name, each in judges.items()}

    def table(self, judges: Mapping[str, Any]) -> Rows:
        """Return a line per judge."""
        rows = [["held-out steps", "accuracy", "AUC", "ECE", "Brier", "first wrong step"]]
        for name, figures in judges.items():
            cells = [with_interval(figures["accuracy"])]
            cells += [number(figures[each]) for each in ("auc", "ece", "brier")]
            rows.append([name, *cells, with_interval(figures["first_wrong"])])
        return rows


def _labels(batch: LabelledBatch) -> np.ndarray:
    """Return a label for each token that is read."""
    rows = [
        targets for targets, reads in zip(batch.targets.rows(), batch.reads_R, strict=True) if reads
    ]
    return np.concatenate(rows) if rows else np.zeros(0, np.float32)


def _labelled(examples: Sequence[Example], outputs: Outputs) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels for the steps that have a label."""
    responses = chain.from_iterable(outputs)
    logits_N = np.asarray(list(chain.from_iterable(responses)))
    labels_N = np.asarray(list(chain.from_iterable(each.step_labels for each in examples)))
    return logits_N[~np.isnan(labels_N)], labels_N[~np.isnan(labels_N)]


def _figures(examples: Sequence[Example], outputs: Outputs, *, seed: int) -> dict[str, Any]:
    logits_N, labels_N = _labelled(examples, outputs)
    truths_N = labels_N > 0.5
    matches = ((logits_N > 0) == truths_N).astype(float).tolist()
    calibration = curve(expit(logits_N).tolist(), truths_N.astype(float).tolist(), bins=BINS) or {}
    auc = None
    if 0 < truths_N.sum() < len(truths_N):
        auc = float(roc_auc_score(truths_N, logits_N))
    first_wrong: list[float] = []
    for example, ((*steps,),) in zip(examples, outputs, strict=True):
        named = _first_wrong([value > 0 for value in steps])
        # Behind the first wrong step no label is needed.
        true = _first_wrong([label > 0.5 or math.isnan(label) for label in example.step_labels])
        first_wrong.append(float(named == true))
    return {
        "count": len(matches),
        "accuracy": share(matches, confidence=CONFIDENCE, seed=seed),
        "auc": auc,
        "ece": calibration.get("ece"),
        "brier": calibration.get("brier"),
        "calibration": calibration,
        "first_wrong": share(first_wrong, confidence=CONFIDENCE, seed=seed),
    }


def _first_wrong(right: Sequence[bool]) -> int:
    """Return the first step that is not right, -1 where all are."""
    return list(right).index(False) if False in right else -1


def _baselines(train: Sequence[Example], held_out: Sequence[Example]) -> dict[str, Outputs]:
    """Return logits that follow from the training labels alone."""
    labels_at: defaultdict[int, list[float]] = defaultdict(list)
    for example in train:
        for place, label in enumerate(example.step_labels):
            if not math.isnan(label):
                labels_at[place].append(label)
    overall = _as_logit(list(chain.from_iterable(labels_at.values())))
    counts = [len(each.step_labels) for each in held_out]
    by_place = [overall] * max(counts, default=0)
    for place in range(len(by_place)):
        if place in labels_at:
            by_place[place] = _as_logit(labels_at[place])
    return {
        "share of right steps": [[[overall] * count] for count in counts],
        "place of the step": [[by_place[:count]] for count in counts],
    }


def _words(train: Sequence[Example], held_out: Sequence[Example]) -> dict[str, Outputs]:
    """Return logits by each step's words, {} where there are too few."""
    texts: list[str] = []
    labels: list[int] = []
    for example in train:
        for step, label in zip(_steps(example), example.step_labels, strict=True):
            if not math.isnan(label):
                texts.append(step)
                labels.append(int(label > 0.5))
    unseen = [step for example in held_out for step in _steps(example)]
    shares_NK = class_probabilities(texts, labels, unseen, count=2)
    if shares_NK is None:
        return {}
    logits = iter(map(_as_logit, shares_NK[:, 1:]))
    return {"words": [[[next(logits) for _ in each.step_labels]] for each in held_out]}


def _steps(example: Example) -> list[str]:
    return example.responses[0].split(SEPARATOR)


def _as_logit(labels: Sequence[float]) -> float:
    return float(logit(np.clip(np.mean(labels), _NEAR_CERTAIN, 1 - _NEAR_CERTAIN)))
