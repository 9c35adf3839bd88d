"""The calibrations for people: a line per reward."""

from __future__ import annotations

from collections.abc import Mapping

from rmrl.api import ProbabilityMap
from rmrl.evaluation.eval_tables import aligned, number, percent


def console(maps: Mapping[str, ProbabilityMap]) -> str:
    """Return what was measured as text; figures come from rows that the map has not seen."""
    quality = [
        ["calibration", "labels", "good", "no verdict", "AUC", "Brier", "after", "ECE", "after"]
    ]
    verdicts = [["verdicts", "from P(good)", "sensitivity", "interval", "specificity", "interval"]]
    estimates = [["without a label", "responses", "accepted", "corrected", "interval"]]
    for name, made in maps.items():
        measured = made.figures
        before = measured["before"] or {}
        after = measured["after"]
        quality.append(
            [
                name,
                str(measured["count"]),
                percent(measured["good"] / measured["count"]),
                str(measured["missing"]),
                number(measured["auc"]),
                number(before.get("brier")),
                number(after["brier"]),
                number(before.get("ece")),
                number(after["ece"]),
            ]
        )
        line = [name, number(made.threshold)]
        for rate in (measured["sensitivity"], measured["specificity"]):
            line += [percent(rate["value"]), _interval(rate)]
        verdicts.append(line)
        estimate = measured.get("without_label")
        if estimate is not None:
            estimates.append(
                [
                    name,
                    str(estimate["count"]),
                    percent(estimate["accepted"]),
                    percent(estimate["value"]),
                    _interval(estimate),
                ]
            )
    blocks = [aligned(quality), aligned(verdicts)]
    if len(estimates) > 1:
        blocks.append(aligned(estimates))
    return "\n\n".join(blocks)


def _interval(rate: Mapping[str, float | None]) -> str:
    return f"{percent(rate['low'])} .. {percent(rate['high'])}"
