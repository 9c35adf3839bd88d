"""The audit as one HTML page without scripts: `rmrl report`'s look, every text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from rmrl.audit.finding import Example, Finding, verdict_of
from rmrl.audit.run_audit import Result
from rmrl.audit.tables import summary
from rmrl.columns import middle_out
from rmrl.report.page import digest_of_inline

_STYLE = """
main { max-width: 1100px; margin: 0 auto; padding: 20px; display: grid; gap: 18px; }
main td, main th { white-space: normal; text-align: left; vertical-align: top; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: 8px; }
.fail { color: var(--bad); font-weight: 650; } .pass { color: var(--good); font-weight: 650; }
"""
_MOST_CHARACTERS = 4000


def page(result: Result) -> str:
    """Return the document."""
    css = (files("rmrl.report") / "assets" / "report.css").read_text(encoding="utf-8")
    style = f"{css}{_STYLE}"
    title = escape(f"Audit of {result.label}")
    policy = f"default-src 'none'; style-src {digest_of_inline(style)}"
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{style}</style></head><body>",
        f"<header><h1>{title}</h1><span>{result.date}: {escape(summary(result))};"
        f" {result.rows} rows, {result.scored:,} responses</span></header><main>",
    ]
    for name, findings in result.findings.items():
        parts += _check(name, findings)
    return "\n".join([*parts, "</main></body></html>", ""])


def _check(name: str, findings: Sequence[Finding]) -> Iterator[str]:
    verdict = verdict_of(findings)
    yield f'<section class="card"><h2>{escape(name)}: <span class="{verdict}">{verdict}</span></h2>'
    heads = ("finding", "verdict", "tried", "rows", "found", "interval", "would have seen")
    cells = "".join(f"<th>{head}</th>" for head in heads)
    yield f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>'
    for finding in findings:
        interval = ""
        if finding.low is not None and finding.high is not None:
            interval = f"{100 * finding.low:.1f} .. {100 * finding.high:.1f} %"
        texts = (finding.verdict, finding.tried, str(finding.rows), finding.found, interval)
        row = "".join(f"<td>{escape(text)}</td>" for text in (*texts, finding.power))
        yield f'<tr><th scope="row">{escape(finding.name.partition(".")[2])}</th>{row}</tr>'
    yield "</tbody></table></div>"
    for finding in findings:
        if finding.verdict == "fail":
            for example in finding.examples:
                yield from _example(finding, example)
    yield "</section>"


def _example(finding: Finding, example: Example) -> Iterator[str]:
    score = "none" if example.score is None else f"{example.score:g}"
    yield f"<h3>{escape(finding.name)}: score {score}; {escape(example.note)}</h3>"
    texts = {
        "prompt": example.prompt,
        "reference": example.reference,
        "response": example.response,
        "the judge read": example.read,
        "the judge wrote": example.wrote,
    }
    for name, text in texts.items():
        if text or name == "response":
            shortened = escape(middle_out(text, _MOST_CHARACTERS))
            yield f'<p class="note">{name}</p><pre>{shortened}</pre>'
