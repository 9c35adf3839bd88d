"""A report as markdown and as one HTML file that needs no network: the console's tables, the
picture, and texts that models wrote, escaped."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmrl.data.surrogates import escaped
from rmrl.evaluation.eval_tables import Rows
from rmrl.files import write_whole

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; margin: 1.5rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8882; padding: .6rem; }
img { max-width: 100%; background: white; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a report shows, in this order."""

    title: str
    tables: Sequence[Rows]
    picture: Path | None = None
    """A PNG beside the page. Left out where the file does not exist."""
    texts: Sequence[tuple[str, Sequence[tuple[str, str]]]] = field(default_factory=tuple)
    """Headings with their (name, text) pairs. The texts are shown as they are."""


def write_page(page: Page, path: Path) -> None:
    """Write `path` with the endings .md and .html. Raises OSError where writing fails."""
    write_whole(path.with_suffix(".md"), escaped(markdown(page)))
    write_whole(path.with_suffix(".html"), escaped(html_page(page)))


def markdown(page: Page) -> str:
    """Return the page as GitHub's markdown. The picture is a link to its file."""
    blocks = [f"# {_inline(page.title)}"]
    for rows in page.tables:
        head, *rest = rows
        lines = [_row(head), "|---|" + "---:|" * (len(head) - 1), *map(_row, rest)]
        blocks.append("\n".join(lines))
    if _drawn(page.picture):
        assert page.picture is not None
        blocks.append(f"![{page.picture.stem}]({page.picture.name})")
    for heading, texts in page.texts:
        blocks.append(f"## {_inline(heading)}")
        for name, text in texts:
            blocks.append(f"{_inline(name)}\n\n{_fenced(text)}")
    return "\n\n".join(blocks) + "\n"


def html_page(page: Page) -> str:
    """Return the page as HTML with the picture in it."""
    title = html.escape(page.title)
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width">',
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
    ]
    for rows in page.tables:
        parts.append("<div><table>")
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True):
            cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</table></div>")
    if _drawn(page.picture):
        assert page.picture is not None
        content = base64.b64encode(page.picture.read_bytes()).decode()
        parts.append(f'<img alt="{page.picture.stem}" src="data:image/png;base64,{content}">')
    for heading, texts in page.texts:
        parts.append(f"<h2>{html.escape(heading)}</h2>")
        for name, text in texts:
            parts.append(f"<p>{html.escape(name)}</p><pre>{html.escape(text)}</pre>")
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _drawn(picture: Path | None) -> bool:
    return picture is not None and picture.is_file()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_inline, cells)) + " |"


def _inline(text: str) -> str:
    """Return a text as one line in which no character means anything to markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>&|#~])", r"\\\1", " ".join(text.split()))


def _fenced(text: str) -> str:
    """Return a text as a code block whose fence is longer than any fence in the text."""
    longest = max([2, *map(len, re.findall(r"`+", text))])
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"
