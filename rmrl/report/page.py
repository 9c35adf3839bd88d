"""Sources -> one HTML page: data and texts as JSON, style and scripts inline, nothing from
elsewhere.

Models' texts are data throughout: they stand in JSON with every "<" escaped, and the page's script
puts them into the document as text nodes. A Content-Security-Policy allows the page's own scripts
and styles by their digests and forbids everything else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import compress
from typing import Any

import numpy as np

from rmrl.api import responses
from rmrl.errors import DataError
from rmrl.report import MOST_CHARACTERS, MOST_SAMPLES, statistics
from rmrl.report.explain import Rules, rules_of
from rmrl.report.numbers import Numbers, gathered
from rmrl.report.sources import Source
from rmrl.report.texts import Texts, chosen, sample_columns, short
from rmrl.report.times import time_spent
from rmrl.telemetry import jsonl

_STYLES = ("uplot.min.css", "report.css")
_SCRIPTS = (
    "uplot.min.js",
    "dom.js",
    "charts.js",
    "overview.js",
    "samples.js",
    "prompts.js",
    "main.js",
)
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def render(
    inputs: Sequence[Source],
    *,
    title: str = "",
    most_samples: int = MOST_SAMPLES,
    most_characters: int = MOST_CHARACTERS,
) -> str:
    """Return the page for one source, or for two side by side.

    `title`: default: the sources' labels. `most_samples`: each source's responses that the page
    lists, see `texts.chosen`; statistics cover all. `most_characters`: of one text. Raises
    DataError where a file holds no scores.
    """
    texts = Texts(limit=most_characters)
    gathered_numbers: list[Numbers] = []
    for source in inputs:
        numbers = gathered(responses(source.samples, source.names))
        if not len(numbers):
            raise DataError(f"{source.samples} holds no responses; need at least one")
        gathered_numbers.append(numbers)
    parts: list[dict[str, Any]] = [
        source_data(source, numbers, texts, limit=most_samples)
        for source, numbers in zip(inputs, gathered_numbers, strict=True)
    ]
    columns = [numbers.columns() for numbers in gathered_numbers]
    title = title or " and ".join([source.label for source in inputs])
    data = {"title": title, "sources": parts, "histograms": histograms(columns)}
    return document(title, island(data), island(texts.texts))


def island(value: Any) -> str:
    """Return JSON that stays data inside a script element: no "<", ">", "&", no JavaScript line
    separators, no lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def source_data(source: Source, numbers: Numbers, texts: Texts, *, limit: int) -> dict[str, Any]:
    """Return a source's statistics, and the columns for at most `limit` responses, whose texts are
    added to `texts`."""
    disputed_N = statistics.disputed(numbers)
    positions_K = chosen(numbers, disputed_N, limit=limit)
    chosen_N = np.zeros(len(numbers), dtype=bool)
    chosen_N[positions_K] = True
    names = list(numbers.components)
    rules = rules_of(source.reward)
    items = compress(responses(source.samples, source.names), chosen_N.tolist())
    columns = sample_columns(items, texts, rules, names=names)
    columns["disputed"] = list(map(short, disputed_N[positions_K].tolist()))
    columns["length"] = list(map(short, numbers.lengths_N[positions_K].tolist()))
    curves = statistics.curves(numbers, source.metrics)
    return {
        "label": source.label,
        "about": _about(source, rules),
        "rows": len(numbers),
        "components": names,
        "rules": rules.as_json(names),
        "summary": statistics.summary(numbers),
        "correlations": statistics.correlations(numbers),
        "opposed": statistics.opposed(numbers),
        "length": statistics.length_bias(numbers),
        "verdicts": statistics.verdicts(numbers),
        "times": time_spent(source, responses=len(numbers)),
        "hints": hints_of(source),
        "curves": curves,
        "samples": columns,
    }


def hints_of(source: Source) -> list[list[int | str]]:
    """Return each hint's step and text."""
    if source.hints is None:
        return []
    return [
        [row["step"], str(row["hint"]).removeprefix(f"step {row['step']}: ")]
        for row in jsonl.read(source.hints)
        if "hint" in row
    ]


def _about(source: Source, rules: Rules) -> list[list[str]]:
    """Return names and texts that say what a source was: its rewards with their weights, and what
    its folder says."""
    rewards: list[str] = [f"{name} (weight {weight:g})" for name, weight in rules.weights.items()]
    about = [["rewards", ", ".join(rewards)], ["combined by", rules.combine]]
    about.extend([name, text] for name, text in source.about.items())
    return [entry for entry in about if entry[1]]


def histograms(columns: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """Return name -> edges, and the counts of each source (None where it lacks the component)."""
    by_name: dict[str, list[np.ndarray]] = {}
    for each in columns:
        for name, values_N in each.items():
            by_name.setdefault(name, []).append(values_N)
    drawn: dict[str, Any] = {}
    for name, arrays in by_name.items():
        edges = statistics.edges_of(arrays)
        counts: list[list[int] | None] = []
        for each in columns:
            if name in each:
                counts.append(statistics.histogram(each[name], edges))
            else:
                counts.append(None)
        drawn[name] = {"edges": edges, "counts": counts}
    return drawn


def document(title: str, data: str, texts: str) -> str:
    """Return the HTML document around the two JSON islands."""
    style = "\n".join(map(_asset, _STYLES))
    script = "\n".join(map(_asset, _SCRIPTS))
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {digest_of_inline(script)}",
            f"style-src {digest_of_inline(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            '<div id="app"><noscript>This page needs JavaScript.</noscript></div>',
            f'<script type="application/json" id="data">{data}</script>',
            f'<script type="application/json" id="texts">{texts}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _asset(name: str) -> str:
    return (files("rmrl.report") / "assets" / name).read_text(encoding="utf-8")


def digest_of_inline(text: str) -> str:
    """Return the source expression that allows an inline element with this text."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
