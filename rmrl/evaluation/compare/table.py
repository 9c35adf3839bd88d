"""The comparison for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmrl.evaluation.compare.check import NAMES
from rmrl.evaluation.compare.flips import short
from rmrl.evaluation.table import aligned, number, percent

_FLIPS = 5
_CHARACTERS = 160


def console(report: Mapping[str, Any]) -> str:
    """Return the report as text, with the five most disputed responses."""
    blocks = [_sections(report), _agreement(report)]
    if report["within_prompts"] is not None:
        blocks.append(_within(report["within_prompts"]))
    blocks.append(_difference(report))
    if report["flips"]:
        blocks.append("most disputed\n" + "\n".join(_flips(report["flips"][:_FLIPS])))
    return "\n\n".join(blocks)


def _sections(report: Mapping[str, Any]) -> str:
    rows = [
        [
            "section",
            "mean",
            "no reward",
            "seconds",
            "computed",
            "cached",
            "tokens in",
            "out",
            "file",
        ]
    ]
    for name in NAMES:
        section = report["sections"][name]
        rows.append(
            [
                name,
                number(section["mean"]),
                str(section["responses"] - section["rewards"]),
                f"{section['seconds']:.1f}",
                "",
                "",
                "",
                "",
                section["file"],
            ]
        )
        for component, cost in section["costs"].items():
            rows.append(
                [
                    f"  {component}",
                    "",
                    "",
                    "",
                    str(cost["computed"]),
                    str(cost["cached"]),
                    str(cost["tokens_in"]),
                    str(cost["tokens_out"]),
                    "",
                ]
            )
    return aligned(rows)


def _agreement(report: Mapping[str, Any]) -> str:
    agreement = report["agreement"]
    columns = ("pearson", "spearman", "kendall", "kappa")
    cells = [number(agreement[column]) for column in columns]
    return aligned(
        [
            ["agreement", "responses", *columns, "equal"],
            ["", str(agreement["count"]), *cells, percent(agreement["equal"])],
        ]
    )


def _within(within: Mapping[str, Any]) -> str:
    return aligned(
        [
            ["within prompts", "prompts", "pairs", "same order", "same best", "rank moved", "by"],
            [
                "",
                str(within["prompts"]),
                str(within["pairs"]),
                percent(within["same_share"]),
                percent(within["same_best"]),
                percent(within["moved"]),
                number(within["mean_move"]),
            ],
        ]
    )


def _difference(report: Mapping[str, Any]) -> str:
    tested = report["difference"]
    head = [report["figure"], *NAMES, "b - a", "interval", "b is higher", "prompts", "count"]
    if tested is None:
        return aligned([head, ["", "-", "-", "-", "-", "-", "0", "0"]])
    values = list(map(number, tested["values"]))
    interval = f"{number(tested['low'])} .. {number(tested['high'])}"
    cells = [number(tested["difference"]), interval, percent(tested["above"])]
    counts = [str(tested["prompts"]), str(tested["count"])]
    return aligned([head, ["", *values, *cells, *counts]])


def _flips(flips: list[Mapping[str, Any]]) -> Iterator[str]:
    for flip in flips:
        rewards = [f"{name} {number(flip[name]['reward'])}" for name in NAMES]
        label = ""
        if flip["good"] is not None:
            label = ", labelled good" if flip["good"] else ", labelled bad"
        yield f"  {visible(flip['id'])}: {', '.join(rewards)}{label}"
        yield f"    prompt   {visible(flip['prompt'])}"
        yield f"    response {visible(flip['response'])}"


def visible(text: str) -> str:
    """Return a text as one line for a terminal: line ends as \\n, other characters that are not
    printable as U+FFFD, the middle of a long one left out."""
    line = ""
    for character in text:
        if character == "\n":
            line += "\\n"
        elif character.isprintable():
            line += character
        else:
            line += "\ufffd"
    return short(line, _CHARACTERS)
