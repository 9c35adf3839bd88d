"""The code in a response: its last fenced block after the thinking part. Time is linear."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rmrl.rewards.reads.response_parts import response_parts

LABELS: dict[str, tuple[str, ...]] = {
    "python": ("python", "py", "python3"),
    "cpp": ("cpp", "c++", "cc", "cxx"),
    "nodejs": ("javascript", "js", "nodejs", "node"),
    "typescript": ("typescript", "ts"),
    "csharp": ("csharp", "c#", "cs"),
    "bash": ("bash", "sh", "shell"),
}
"""Language -> labels of its fences. Any other language is labelled with its own name."""

_IN_A_LINE = re.compile(r"[^`](```+)([\w+#.:-]+)$")
"""A fence with a label at the end of a text line: `Here it is: ```python`."""
_LONG_QUOTES = ('"""', "'''")
_PYTHON_PARTS = re.compile(r"""#.*|\"{3}|'{3}|\\.|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
"""Comments, quotes of long strings, and short strings in a line of Python."""


def code_block(
    response: str, language: str, *, needs_block: bool = True, opened: bool | None = None
) -> str | None:
    """Return the last fenced block that is labelled with the language, else the last one without a
    label; None without one. Empty blocks do not count.

    A block that nothing closes reaches to the end: the response broke off in it. Without
    `needs_block` a response without any fence is code as a whole. A thinking part that never ends
    is followed by no code; `opened`: whether the prompt began it, None: not known.
    """
    parts = response_parts(response, opened=opened)
    if parts.unclosed:
        return None
    text = "\n".join(response[start:end] for start, end in parts.answer).strip()
    blocks = fenced_blocks(text)
    if not blocks and not needs_block and text.strip():
        return text
    labels: Collection[str] = LABELS.get(language, (language.lower(),))
    unlabelled: str | None = None
    for label, code in reversed(blocks):
        if label in labels and code.strip():
            return code
        if not label and unlabelled is None and code.strip():
            unlabelled = code
    return unlabelled


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """(label in lower case, code) of every block between ``` or ~~~ lines, in order. A fence in a
    long string of a Python block is part of the string."""
    blocks: list[tuple[str, str]] = []
    fence = ""
    label = ""
    quote = ""
    indent = 0
    lines: list[str] = []
    string_end = 0
    text_lines = text.split("\n")
    for number, line in enumerate(text_lines):
        bare = line.strip()
        if not fence:
            fence, label = _opening(bare)
            indent = len(line) - len(line.lstrip())
            lines = []
            quote = ""
            continue
        closes = bare.startswith(fence) and not bare.strip(fence[0])
        if closes and quote and string_end <= number:
            string_end = _string_end(text_lines, number, quote)
        if closes and not (quote and number < string_end):
            blocks.append((label, "\n".join(lines)))
            fence = ""
            continue
        own_indent = len(line) - len(line.lstrip(" "))
        lines.append(line[min(indent, own_indent) :])
        if label in LABELS["python"]:
            quote = _open_quote(line, quote)
    if fence:
        blocks.append((label, "\n".join(lines)))
    return blocks


def _opening(bare: str) -> tuple[str, str]:
    """The run of ` or ~ that opens a block, and its label; "" where the line opens none."""
    for mark in ("`", "~"):
        length = len(bare) - len(bare.lstrip(mark))
        if length >= 3 and mark not in bare[length:]:
            return mark * length, _label(bare[length:])
    match = _IN_A_LINE.search(bare)
    if match is not None and bare.count("```") == 1:
        return match[1], _label(match[2])
    return "", ""


def _label(info: str) -> str:
    """The language in `python`, `python title=main.py`, `python:main.py`."""
    words = info.replace("{", " ").replace(":", " ").split()
    return words[0].lower() if words else ""


def _open_quote(line: str, quote: str) -> str:
    """The quotes of the long string that a line of Python leaves open; `quote`: those of the string
    in which the line begins."""
    place = 0
    while True:
        if quote:
            end = line.find(quote, place)
            if end < 0:
                return quote
            place = end + len(quote)
        match = _PYTHON_PARTS.search(line, place)
        if match is None:
            return ""
        place = match.end()
        quote = match[0] if match[0] in _LONG_QUOTES else ""


def _string_end(lines: Sequence[str], number: int, quote: str) -> int:
    """Number of the line after `number` in which a long string ends; `number` where the next block
    with a label comes first, or the text's end: then the string was never closed."""
    for later in range(number + 1, len(lines)):
        if quote in lines[later]:
            return later
        if _opening(lines[later].strip())[1]:
            return number
    return number
