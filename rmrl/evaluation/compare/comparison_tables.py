"""The comparison for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmrl.evaluation.compare.check_comparison import NAMES
from rmrl.evaluation.compare.flips import short
from rmrl.evaluation.eval_tables import Rows, aligned, number, percent
from rmrl.evaluation.page import Page

_FLIPS = 5
_CHARACTERS = 160


def console(report: Mapping[str, Any]) -> str:
    """Return the report as text, with the five most disputed responses."""
    blocks = list(map(aligned, tables(report)))
    if report["flips"]:
        blocks.append("most disputed\n" + "\n".join(_flips(report["flips"][:_FLIPS])))
    return "\n\n".join(blocks)


def tables(report: Mapping[str, Any]) -> list[Rows]:
    """Return the report's tables."""
    several = [_sections(report), _agreement(report)]
    if report["within_prompts"] is not None:
        several.append(_within(report["within_prompts"]))
    several.append(_difference(report))
    verdicts = report["verdicts"]
    if verdicts is not None:
        p = "< 0.001"
        if verdicts["p"] >= 0.001:
            p = number(verdicts["p"])
        counts = [str(verdicts[name]) for name in ("same", "only_a", "only_b", "prompts")]
        several.append(
            [
                ["verdicts (McNemar)", "the same", "only a", "only b", "prompts", "p"],
                ["", *counts, p],
            ]
        )
    return several


def page_of(report: Mapping[str, Any], picture: Path) -> Page:
    """Return the report as a page, with every disputed response that it holds."""
    texts: list[tuple[str, list[tuple[str, str]]]] = []
    for flip in report["flips"]:
        heading = f"{flip['id']}: {_rewards(flip)}"
        texts.append((heading, [("prompt", flip["prompt"]), ("response", flip["response"])]))
    files = [Path(report["sections"][name]["file"]).name for name in NAMES]
    return Page(
        title=f"{files[0]} (a) and {files[1]} (b) on {report['compared']} responses",
        tables=tables(report),
        picture=picture,
        texts=texts,
    )


def _sections(report: Mapping[str, Any]) -> Rows:
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
    return rows


def _agreement(report: Mapping[str, Any]) -> Rows:
    agreement = report["agreement"]
    columns = ("pearson", "spearman", "kendall", "kappa")
    cells = [number(agreement[column]) for column in columns]
    return [
        ["agreement", "responses", *columns, "equal"],
        ["", str(agreement["count"]), *cells, percent(agreement["equal"])],
    ]


def _within(within: Mapping[str, Any]) -> Rows:
    return [
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


def _difference(report: Mapping[str, Any]) -> Rows:
    tested = report["difference"]
    head = [report["figure"], *NAMES, "b - a", "interval", "b is higher", "prompts", "count"]
    if tested is None:
        return [head, ["", "-", "-", "-", "-", "-", "0", "0"]]
    values = list(map(number, tested["values"]))
    interval = f"{number(tested['low'])} .. {number(tested['high'])}"
    cells = [number(tested["difference"]), interval, percent(tested["above"])]
    counts = [str(tested["prompts"]), str(tested["count"])]
    return [head, ["", *values, *cells, *counts]]


def _flips(flips: list[Mapping[str, Any]]) -> Iterator[str]:
    for flip in flips:
        yield f"  {visible(flip['id'])}: {_rewards(flip)}"
        yield f"    prompt   {visible(flip['prompt'])}"
        yield f"    response {visible(flip['response'])}"


def _rewards(flip: Mapping[str, Any]) -> str:
    rewards = ", ".join(f"{name} {number(flip[name]['reward'])}" for name in NAMES)
    if flip["good"] is None:
        return rewards
    if flip["good"]:
        return f"{rewards}, labelled good"
    return f"{rewards}, labelled bad"


def visible(text: str) -> str:
    """Return a text as one line for a terminal: line ends as \\n, other characters that are not
    printable as U+FFFD, a long one's middle left out."""
    line = ""
    for character in text:
        if character == "\n":
            line += "\\n"
        elif character.isprintable():
            line += character
        else:
            line += "\ufffd"
    return short(line, _CHARACTERS)
