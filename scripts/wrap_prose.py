"""Wrap the prose of Markdown pages at 100 columns; tables, code and headings stay as they are.

    python scripts/wrap_prose.py            all pages of the project
    python scripts/wrap_prose.py PAGE...    these pages
    python scripts/wrap_prose.py --check    write nothing; exit 1 while a page is not wrapped

`make check` calls the last.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^(\s*)([-*+]|\d+[.)])(\s+)")
_VERBATIM = re.compile(r"^\s*(#{1,6} |\||<|>|!\[|\[[^\]]+\]: )|^\s*([-*_]\s*){3,}$")
_ATOM = re.compile(r"(`[^`]+`|!?\[[^\]]*\]\([^)]*\)|[^\s`\[]|\[)+")
"""A word, in which code spans and links keep their spaces."""
_MARKER = re.compile(r"^([-*+]|\d+[.)]|#{1,6}|[>|].*)$")
"""A word that would start a list, a heading, a quote or a table at the beginning of a line."""


def pages() -> list[Path]:
    """Return the pages whose prose is wrapped; generated ones are wrapped by their scripts too."""
    return [
        ROOT / "README.md",
        *sorted(path for path in ROOT.glob("[A-Z]*.md") if path.name != "README.md"),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").glob("*/README.md")),
    ]


def wrap(text: str) -> str:
    """Return a page with its paragraphs and list items filled to WIDTH columns."""
    lines: list[str] = []
    paragraph: list[str] = []
    fenced = False
    for line in text.splitlines():
        fence = _FENCE.match(line) is not None
        if fenced or fence or not line.strip() or _VERBATIM.match(line):
            lines += fill(paragraph)
            paragraph = []
            lines.append(line.rstrip() if not fenced else line)
            fenced = fenced != fence
        elif _ITEM.match(line):
            lines += fill(paragraph)
            paragraph = [line]
        else:
            paragraph.append(line)
    lines += fill(paragraph)
    return "\n".join(lines) + "\n"


def fill(paragraph: list[str]) -> list[str]:
    """Return the lines of one paragraph or list item, filled."""
    if not paragraph:
        return []
    item = _ITEM.match(paragraph[0])
    first = item[0] if item else re.match(r"\s*", paragraph[0])[0]  # type: ignore[index]
    indent = " " * len(first)
    text = " ".join(" ".join(paragraph).split())
    if item:
        text = text[len(item[2]) :].strip()
    lines = [first]
    for word in _words(text):
        joined = (
            f"{lines[-1]} {word}" if lines[-1].strip() and lines[-1] != first else lines[-1] + word
        )
        if (
            len(joined) <= WIDTH
            or not lines[-1].strip()
            or lines[-1] == first
            or _MARKER.match(word)
        ):
            lines[-1] = joined
        else:
            lines.append(indent + word)
    return lines


def _words(text: str) -> list[str]:
    return [match[0] for match in _ATOM.finditer(text)]


def main() -> None:
    """Rewrite the pages named on the command line, or all."""
    parser = argparse.ArgumentParser(description="Wrap the prose of Markdown pages.")
    parser.add_argument("pages", nargs="*", type=Path, help="all pages of the project if none")
    parser.add_argument("--check", action="store_true", help="exit 1 while a page is not wrapped")
    arguments = parser.parse_args()
    unwrapped = False
    for page in arguments.pages or pages():
        before = page.read_text(encoding="utf-8")
        after = wrap(before)
        if after == before:
            continue
        unwrapped = True
        if arguments.check:
            print(f"{page}: not wrapped; run python scripts/wrap_prose.py")
        else:
            page.write_text(after, encoding="utf-8")
            print(f"wrapped {page}")
    if arguments.check and unwrapped:
        sys.exit(1)


if __name__ == "__main__":
    main()
