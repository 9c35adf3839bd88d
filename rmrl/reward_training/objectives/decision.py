"""Decision: each answer's probability to a question, from the language model's own head.

With the answers' probabilities p (among the answers) and the label q, which is 1 for the right one
or a distribution, `loss.decision` is

    cross_entropy   - sum q log p
    brier           sum (p - q)^2                                   (Brier 1950)
    rlcd            - mean over draws a ~ p of  (q_a - p_a) log p_a       (r = correct - stated)
    outcome         - mean over draws a ~ p of  q_a log p_a               (r = correct)

and `loss.label_mass` times  - log P(some answer)  is added, which keeps the answers likely among
all tokens. In a draw's factor the probabilities are constants, and the mean over the other draws is
taken off. The gradient of rlcd is half of Brier's in expectation: sum (q_a - p_a) grad p_a. That
of outcome is grad sum q p, whose optimum states the likeliest answer with certainty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rmrl.evaluation.eval_tables import Rows, number
from rmrl.evaluation.measures.calibration import curve
from rmrl.evaluation.measures.shares import share
from rmrl.reward_training.example import Example
from rmrl.reward_training.held_out import BINS, CONFIDENCE, with_interval
from rmrl.reward_training.labelled_batch import LabelledBatch
from rmrl.reward_training.objectives.objective import Objective, Outputs, Targets, rows_of_items
from rmrl.reward_training.readings.answer_tokens import AnswerTokens
from rmrl.reward_training.readings.reading import Reading
from rmrl.reward_training.text_baseline import class_probabilities

_RARE = 1e-4
"""Least share of an answer that no training row has."""


class Decision(Objective):
    """An item has a row for each answer. Its target: the answer's probability."""

    forms: ClassVar[tuple[str, ...]] = ("choice",)
    loss_keys: ClassVar[tuple[str, ...]] = ("decision", "draws", "label_mass")
    reads: ClassVar[type[Reading]] = AnswerTokens
    chosen_by: ClassVar[tuple[str, ...]] = ("brier", "accuracy", "loss")

    def targets(self, example: Example) -> Targets:
        """Return each answer's probability."""
        return tuple((each,) for each in example.distribution)

    def loss(self, batch: LabelledBatch, outputs_Nn: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum over questions, and sums for accuracy, Brier score and label mass."""
        outputs_N = outputs_Nn[:, 0]
        labels_N = torch.from_numpy(batch.targets.values.copy()).to(outputs_N.device)
        total = outputs_N.sum() * 0
        sums: dict[str, Tensor] = {
            name: total.detach() for name in ("accuracy", "brier", "label_mass")
        }
        for rows in rows_of_items(batch):
            logprobs_K, labels_K = outputs_N[rows], labels_N[rows]
            mass = logprobs_K.logsumexp(0)
            shares_K = logprobs_K - mass
            total = total + self._question(shares_K, labels_K) - self._settings.label_mass * mass
            with torch.no_grad():
                p_K = shares_K.exp()
                sums["accuracy"] = sums["accuracy"] + labels_K[p_K.argmax()]
                sums["brier"] = sums["brier"] + ((p_K - labels_K) ** 2).sum()
                sums["label_mass"] = sums["label_mass"] + mass.exp()
        return total, sums

    def _question(self, logshares_K: Tensor, labels_K: Tensor) -> Tensor:
        """Return one question's loss, but for the label mass."""
        p_K = logshares_K.exp()
        if self._settings.decision == "cross_entropy":
            return -(labels_K * logshares_K).sum()
        if self._settings.decision == "brier":
            return ((p_K - labels_K) ** 2).sum()
        constant_K = p_K.detach()
        count = self._settings.draws
        drawn = torch.multinomial(constant_K.cpu(), count, replacement=True).to(labels_K.device)
        rewards = labels_K[drawn]
        if self._settings.decision == "rlcd":
            rewards = rewards - constant_K[drawn]
        if count > 1:
            rewards = rewards - (rewards.sum() - rewards) / (count - 1)
        return -(rewards * logshares_K[drawn]).mean()

    def quick(self, examples: Sequence[Example], outputs: Outputs) -> dict[str, float]:
        """Return the cross-entropy, accuracy, Brier score, ECE and label mass."""
        figures = _figures(examples, outputs)
        del figures["credits"], figures["calibration"]
        return figures

    def report(
        self,
        train: Sequence[Example],
        held_out: Sequence[Example],
        outputs: Mapping[str, Outputs],
        *,
        seed: int,
    ) -> dict[str, Any]:
        """Return figures for each judge. The answers' shares in the training rows, by question, and
        a logistic regression on words are judges as well."""
        prior = _prior(train, held_out)
        judges = {
            **outputs,
            "words": _words(train, held_out, prior),
            "share of each answer": prior,
        }
        report: dict[str, Any] = {}
        for name, each in judges.items():
            figures = _figures(held_out, each)
            accuracy = share(figures.pop("credits"), confidence=CONFIDENCE, seed=seed)
            report[name] = {**figures, "accuracy": accuracy}
        return report

    def table(self, judges: Mapping[str, Any]) -> Rows:
        """Return a line per judge."""
        rows = [["held-out questions", "accuracy", "ECE", "Brier", "cross-entropy", "label mass"]]
        for name, figures in judges.items():
            cells = [number(figures[each]) for each in ("ece", "brier", "loss", "label_mass")]
            rows.append([name, with_interval(figures["accuracy"]), *cells])
        return rows


def _figures(examples: Sequence[Example], outputs: Outputs) -> dict[str, Any]:
    """Return means over the questions, how the choices are calibrated, and each choice's P(right)
    as `credits`."""
    figures: dict[str, list[float]] = {"loss": [], "brier": [], "label_mass": []}
    credits: list[float] = []
    confidences: list[float] = []
    likeliest: list[float] = []
    for example, rows in zip(examples, outputs, strict=True):
        logprobs_K = np.asarray([values[0] for values in rows])
        mass = np.logaddexp.reduce(logprobs_K)
        logshares_K = logprobs_K - mass
        label_K = np.asarray(example.distribution)
        figures["loss"].append(-float((label_K * logshares_K).sum()))
        figures["brier"].append(float(((np.exp(logshares_K) - label_K) ** 2).sum()))
        figures["label_mass"].append(float(np.exp(mass)))
        choice = int(logshares_K.argmax())
        credits.append(float(label_K[choice]))
        confidences.append(min(float(np.exp(logshares_K[choice])), 1.0))
        likeliest.append(float(label_K[choice] == label_K.max()))
    means: dict[str, Any] = {name: float(np.mean(values)) for name, values in figures.items()}
    calibration = curve(confidences, likeliest, bins=BINS)
    if calibration is not None:
        means["ece"] = calibration["ece"]
    accuracy = float(np.mean(credits))
    return {**means, "accuracy": accuracy, "credits": credits, "calibration": calibration}


def _about(example: Example) -> tuple[str, tuple[str, ...]]:
    return example.question, example.answers


def _log_outputs(shares_K: np.ndarray) -> list[list[float]]:
    """Return shares as a judge's outputs. None is rarer than `_RARE`."""
    kept_K = np.maximum(shares_K, _RARE)
    return [[float(each)] for each in np.log(kept_K / kept_K.sum())]


def _prior(train: Sequence[Example], held_out: Sequence[Example]) -> Outputs:
    """Return each answer's log share among the training rows with the question."""
    sums: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}
    for example in train:
        label_K = np.asarray(example.distribution)
        sums[_about(example)] = sums.get(_about(example), np.zeros(len(label_K))) + label_K
    outputs: list[list[list[float]]] = []
    for example in held_out:
        sum_K = sums.get(_about(example), np.ones(len(example.answers)))
        outputs.append(_log_outputs(sum_K / sum_K.sum()))
    return outputs


def _words(train: Sequence[Example], held_out: Sequence[Example], prior: Outputs) -> Outputs:
    """Return each answer's log share by the words that prompt and response have. A question with
    too few rows has its `prior`."""
    seen: defaultdict[Hashable, list[Example]] = defaultdict(list)
    for example in train:
        seen[_about(example)].append(example)
    places: defaultdict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for place, example in enumerate(held_out):
        places[_about(example)].append(place)
    outputs = list(prior)
    for about, unseen in places.items():
        shares_NK = class_probabilities(
            list(map(_text, seen[about])),
            [int(np.argmax(each.distribution)) for each in seen[about]],
            [_text(held_out[place]) for place in unseen],
            count=len(about[1]),
        )
        if shares_NK is not None:
            for place, shares_K in zip(unseen, shares_NK, strict=True):
                outputs[place] = _log_outputs(shares_K)
    return outputs


def _text(example: Example) -> str:
    return f"{example.key}\n{example.responses[0]}"
