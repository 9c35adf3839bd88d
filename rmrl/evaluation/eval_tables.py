"""The report for people: a line per judge and control, a column per subset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmrl import columns

_MOST_SUBSETS = 8


Rows = Sequence[Sequence[str]]
"""A table: every row has equally many cells, and the first row has the columns' names."""


def console(numbers: Mapping[str, Any]) -> str:
    """Return the whole report as text."""
    return "\n\n".join([heading(numbers), *map(aligned, tables(numbers))])


def heading(numbers: Mapping[str, Any]) -> str:
    """Return the benchmark and its size as one line."""
    return f"{numbers['format']}: {numbers['items']} items"


def tables(numbers: Mapping[str, Any]) -> list[Rows]:
    """Return the report's tables that have a line."""
    judges: Mapping[str, Any] = numbers["judges"]
    several: list[Rows] = []
    if any("accuracy" in judge for judge in judges.values()):
        several.append(accuracies(judges, numbers["controls"]))
    if any("values" in judge for judge in judges.values()):
        several.append(against_people(judges))
    for rows in (published_figures(judges), details(judges), pressures(judges)):
        if len(rows) > 1:
            several.append(rows)
    if numbers["weights"] is not None:
        several.append(best_weights(numbers["weights"]))
    return several


def aligned(rows: Rows) -> str:
    """Align cells in rows, the first column to the left, the others to the right."""
    return "\n".join(columns.aligned(rows, right=range(1, len(rows[0])), indent=""))


def accuracies(judges: Mapping[str, Any], controls: Mapping[str, Any]) -> Rows:
    """Return a line per judge and control: accuracy with its interval, and by subset where there
    are two to eight."""
    subsets: set[str] = set()
    lines: list[tuple[str, Any]] = []
    for name, judge in judges.items():
        subsets |= set(judge["by_subset"])
        lines.append((name, judge))
    for name, control in controls.items():
        lines.append((f"({name})", control))
    named: list[str] = []
    if 1 < len(subsets) <= _MOST_SUBSETS:
        named = sorted(subsets)
    rows = [["accuracy", "all", "interval", *named, "tied", "missing"]]
    for name, judge in lines:
        accuracy = judge["accuracy"]
        cells = [percent(judge["by_subset"].get(each, {}).get("value")) for each in named]
        interval = f"{percent(accuracy['low'])} .. {percent(accuracy['high'])}"
        rows.append(
            [
                name,
                percent(accuracy["value"]),
                interval,
                *cells,
                str(judge["tied"]),
                str(judge["missing"]),
            ]
        )
    return rows


def against_people(judges: Mapping[str, Any]) -> Rows:
    """Return a line per judge: its scores compared with people's numbers."""
    figures = ("count", "missing", "pearson", "spearman", "kendall", "alpha", "auc")
    rows = [["against people", *figures, "equal"]]
    for name, judge in judges.items():
        values = judge["values"]
        cells = [number(values.get(column)) for column in figures]
        rows.append([name, *cells, percent(values["equal"]["value"])])
    return rows


def published_figures(judges: Mapping[str, Any]) -> Rows:
    """Return a line per figure that the benchmark publishes, below the judges' names."""
    table: dict[str, list[str]] = {}
    for judge in judges.values():
        for name, value in judge["figures"].items():
            table.setdefault(name, [name]).append(percent(value))
    return [["as published", *judges], *table.values()]


def details(judges: Mapping[str, Any]) -> Rows:
    """Return a line per bias and calibration statistic that any judge has, below the judges'
    names."""
    statistics = {
        "kappa with labels": ("people", "kappa"),
        "consistent in both orders": ("position", "consistent", "value"),
        "Brier": ("calibration", "brier"),
        "ECE": ("calibration", "ece"),
        "Brier of P(good)": ("calibrated", "calibration", "brier"),
        "ECE of P(good)": ("calibrated", "calibration", "ece"),
        "share of good": ("calibrated", "good", "value"),
        "the same, estimated": ("calibrated", "corrected", "value"),
        "picks the longer": ("length", "picks_longer", "value"),
        "label is the longer": ("length", "label_longer", "value"),
    }
    rows = [["details", *judges]]
    for title, path in statistics.items():
        cells: list[str] = []
        for judge in judges.values():
            value = judge
            for name in path:
                value = (value or {}).get(name)
            cells.append(number(value))
        if set(cells) != {"-"}:
            rows.append([title, *cells])
    return rows


def pressures(judges: Mapping[str, Any]) -> Rows:
    """Return a line per judge with a pressure curve: its favourite's gold among n."""
    curves = {name: judge["pressure"] for name, judge in judges.items() if judge["pressure"]}
    counts = sorted({n for curve in curves.values() for n in curve["n"]})
    rows = [["gold of the best of n", *map(str, counts), "falls from"]]
    for name, curve in curves.items():
        values = dict(zip(curve["n"], curve["gold"], strict=True))
        rows.append([name, *(number(values.get(n)) for n in counts), number(curve["falls_from"])])
    return rows


def best_weights(weights: Mapping[str, Any]) -> Rows:
    """Return a line per reward with its weight and its accuracy alone, then the combinations."""
    rows = [["best weights", "weight", "alone"]]
    for name, weight in weights["weights"].items():
        rows.append([name, number(weight), percent(weights["single"][name]["value"])])
    rows.append(["together, unseen pairs", "", percent(weights["accuracy"]["value"])])
    rows.append(["equal weights, standardized", "", percent(weights["equal"]["value"])])
    return rows


def percent(value: float | None) -> str:
    """Return a share as percent with a decimal. "-" for None."""
    if value is None:
        return "-"
    return f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """Return a count as it is, another number with three decimals. "-" for None."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}"
