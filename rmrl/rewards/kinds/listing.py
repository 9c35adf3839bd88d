"""The kinds of rewards as text, each with the first sentence of its module."""

from __future__ import annotations

import sys
from textwrap import wrap

from rmrl.rewards.kinds import REWARD_KINDS

_WIDTH = 100


def kinds_text() -> str:
    """Return a line or two for every kind: what it is, in its own words."""
    width = max(map(len, REWARD_KINDS)) + 2
    lines: list[str] = []
    for name in REWARD_KINDS:
        document = sys.modules[REWARD_KINDS[name].__module__].__doc__ or ""
        # "Kind `rule`: a Python function ...", up to the end of the paragraph or sentence
        paragraph = " ".join(document.partition("\n\n")[0].split())
        sentence = paragraph.partition(": ")[2].partition(". ")[0].rstrip(".")
        lines += wrap(
            f"{name:<{width}}{sentence}",
            _WIDTH,
            subsequent_indent=" " * width,
        )
    lines += ["", "a complete configuration of each: docs/rewards/kinds/<kind>.md"]
    return "\n".join(lines)
