"""A page on which people label responses with the keyboard. Its export is what `rmrl audit` and
`rmrl calibrate` read.

It has the responses that showed a fault, and others that are spread over all scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import chain
from typing import Any

import numpy as np

from rmrl.audit.audit_rows import Row
from rmrl.audit.finding import Finding
from rmrl.report.page import digest_of_inline, island

NAME = "labelling.html"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8882; padding: .6rem; }
:root { color-scheme: light dark; }
"""


def chosen(
    rows: Sequence[Row],
    scores: Sequence[float],
    findings: Mapping[str, Sequence[Finding]],
    count: int,
) -> list[dict[str, Any]]:
    """Return at most `count` rows as the export holds them, without a label. `scores`: for all
    responses in order."""
    faults = chain.from_iterable(
        finding.examples
        for finding in chain.from_iterable(findings.values())
        if finding.verdict == "fail"
    )
    listed: dict[tuple[str, str], dict[str, Any]] = {}
    for example in faults:
        if example.prompt and len(listed) < count // 2:
            row = _exported(example.prompt, example.response, example.reference)
            listed.setdefault((example.prompt, example.response), row)
    answers = [(row, text) for row in rows for text in row.responses]
    order = np.argsort(np.asarray(scores), kind="stable")
    places = np.linspace(0, len(order) - 1, min(len(order), count - len(listed)))
    for place in places.astype(np.int64) if len(order) else ():
        row, text = answers[order[place]]
        prompt = str(row.prompt.messages[-1]["content"])
        listed.setdefault((prompt, text), _exported(prompt, text, row.reference))
    return list(listed.values())


def _exported(prompt: str, response: str, reference: str) -> dict[str, Any]:
    exported: dict[str, Any] = {"prompt": prompt, "response": response}
    if reference:
        exported["ground_truth"] = reference
    return exported


def labelling_page(label: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the document."""
    script = files("rmrl.audit").joinpath("labelling.js").read_text(encoding="utf-8")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {digest_of_inline(script)}",
            f"style-src {digest_of_inline(_STYLE)}",
        ]
    )
    title = escape(f"Labels for {label}")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            "<p>g: good, b: bad, u: no label, arrows: move, s: save labelled.jsonl</p>",
            '<p id="place"></p><h2>Prompt</h2><pre id="prompt"></pre>',
            '<h2>Reference</h2><pre id="ground_truth"></pre>',
            '<h2>Response</h2><pre id="response"></pre>',
            f'<script type="application/json" id="rows">{island(list(rows))}</script>',
            f"<script>{script}</script></body></html>",
            "",
        ]
    )
