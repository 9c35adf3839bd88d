"""Does the reward agree with people's labels, and more than length alone does?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.stats import bootstrap
from sklearn.metrics import roc_auc_score

from rmrl.audit.audit_rows import has_labels
from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.finding import Finding, Verdict, noted, unmeasured
from rmrl.evaluation.measures.calibration import curve

_RESAMPLES = 500
_LEAST_OF_EACH = 5
_BINS = 10


class Agreement:
    """AUC with a bootstrap over prompts, beside length as baseline."""

    name: ClassVar[str] = "agreement"
    needs: ClassVar[str] = "labels"
    responses_per_row: ClassVar[int] = 8
    probe: ClassVar[Probe] = Probe(
        code="def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(not solution_str.endswith(ground_truth))\n"
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        name, tried = "agreement.auc", "people's labels"
        if not has_labels(bench.rows):
            why = "rows have no labels: label some on labelling.html, and give label=label"
            return [unmeasured(name, tried, why)]
        await bench.goldens()  # made rows have their responses in the reward's form from here
        labelled = [
            (number, row, text, label)
            for number, row in enumerate(bench.rows)
            for text, label in zip(row.responses, row.labels, strict=True)
            if label is not None
        ]
        scores = await bench.subject.score([row.case(text) for _, row, text, _ in labelled])
        chosen = [
            (number, float(label), score.value, float(len(text)), row.prompt.data_source)
            for (number, row, text, label), score in zip(labelled, scores, strict=True)
            if not math.isnan(score.value)
        ]
        good = sum(label for _, label, *_ in chosen)
        if min(good, len(chosen) - good) < _LEAST_OF_EACH:
            why = f"{good:.0f} good and {len(chosen) - good:.0f} bad scored; need 5 of each"
            return [unmeasured(name, tried, why, rows=len(chosen))]
        columns = list(zip(*chosen, strict=True))
        prompts, labels, values, lengths = (np.asarray(each) for each in columns[:4])
        auc, low, high = clustered_auc(
            labels, values, prompts, confidence=bench.limits.confidence, seed=bench.limits.seed
        )
        longest = float(roc_auc_score(labels, lengths))
        baseline = max(bench.settings.least_auc, longest, 1 - longest)
        verdict: Verdict = "not measurable"
        found = (
            f"AUC {auc:.2f} ({low:.2f} .. {high:.2f}), length alone {max(longest, 1 - longest):.2f}"
        )
        if low > baseline:
            verdict = "pass"
        elif high <= baseline:
            verdict = "fail"
        else:
            found += ": too few labels to tell them apart"
        main = Finding(
            name=name,
            tried=tried,
            rows=len(chosen),
            found=found,
            value=auc,
            low=low,
            high=high,
            power=f"AUC below {baseline - (high - low) / 2:.2f}",
            verdict=verdict,
        )
        return [main, *further(labels, values, columns[4])]


def clustered_auc(
    labels_N: np.ndarray,
    values_N: np.ndarray,
    prompts_N: np.ndarray,
    *,
    confidence: float,
    seed: int,
) -> tuple[float, float, float]:
    """Return the AUC and its percentile interval, with prompts drawn with replacement."""
    auc = float(roc_auc_score(labels_N, values_N))
    members = [np.flatnonzero(prompts_N == prompt) for prompt in np.unique(prompts_N)]
    if len(members) < 2:
        return auc, 0.0, 1.0

    def statistic(drawn: np.ndarray) -> float:
        rows = np.concatenate([members[int(prompt)] for prompt in drawn])
        if len(set(labels_N[rows])) < 2:
            return auc
        return float(roc_auc_score(labels_N[rows], values_N[rows]))

    result = bootstrap(
        (np.arange(len(members)),),
        statistic,
        vectorized=False,
        n_resamples=_RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    interval = result.confidence_interval
    return auc, float(interval.low), float(interval.high)


def further(labels_N: np.ndarray, values_N: np.ndarray, sources: Sequence[str]) -> list[Finding]:
    """Return calibration where scores are probabilities, and the AUC by source."""
    several: list[Finding] = []
    calibrated = curve(values_N.tolist(), labels_N.tolist(), bins=_BINS)
    if calibrated is not None:
        text = f"Brier {calibrated['brier']:.3f}, ECE {calibrated['ece']:.3f}"
        several.append(noted("agreement.calibration", "scores as probabilities", text))
    by_source: dict[str, list[int]] = defaultdict(list)
    for position, source in enumerate(sources):
        by_source[source].append(position)
    if len(by_source) > 1:
        parts = [
            f"{source} {roc_auc_score(labels_N[rows], values_N[rows]):.2f}"
            for source, rows in sorted(by_source.items())
            if len(set(labels_N[rows])) == 2
        ]
        several.append(noted("agreement.sources", "AUC by source", ", ".join(parts)))
    return several
