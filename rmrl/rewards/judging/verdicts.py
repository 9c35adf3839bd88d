"""Read a judge's verdict in `rm_postprocess`.

    from rmrl.rewards.judging.verdicts import last_number
    last_number("Final score: 7/10. In 2 places it errs.", 0, 10)  # 7.0

Quotations count less than the judge's own words (see `quotations`): pass `response`, as the judge
read it or as the policy wrote it, so that copies out of it do not count, and `prompt`, the judge's
prompt, so that an echo of it does not. Nothing is evaluated, and time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from rmrl.rewards.judging.json_fields import last_field
from rmrl.rewards.judging.quotations import QUOTES, QUOTES_IN_JSON, views
from rmrl.rewards.judging.reader import read_choice, read_number

Content = TypeVar("Content")


def last_number(
    text: str, low: float, high: float, *, response: str = "", prompt: str = ""
) -> float | None:
    """The number from `low` to `high`, both included, that the judge gave; None without a verdict.
    See `reader.read_number`."""
    return read_number(text, low, high, response=response, prompt=prompt).verdict


def last_choice(
    text: str,
    choices: Sequence[str],
    *,
    response: str = "",
    prompt: str = "",
    no_preference: Literal["tie", "none"] = "tie",
) -> str | None:
    """The one of `choices` that the judge chose, spelt as there; None without a verdict. See
    `reader.read_choice`."""
    return read_choice(
        text, choices, response=response, prompt=prompt, no_preference=no_preference
    ).verdict


def last_tagged(text: str, tag: str, *, response: str = "") -> str | None:
    """The content of the last complete <tag>...</tag>, stripped; case does not matter. None without
    one."""
    opening = re.compile(rf"<{re.escape(tag)}>", re.IGNORECASE)
    closing = re.compile(rf"</{re.escape(tag)}>", re.IGNORECASE)

    def content(view: str) -> str | None:
        closes = [match.start() for match in closing.finditer(view)]
        opens = [match.end() for match in opening.finditer(view)]
        # Those behind the last closing tag are never closed.
        while closes and opens and opens[-1] > closes[-1]:
            opens.pop()
        if closes and opens:
            return text[opens[-1] : closes[-1]].strip()
        return None

    return _first_in_views(text, response, content, QUOTES)


def last_json_field(text: str, field: str, *, response: str = "") -> Any:
    """The value of `field` in the last JSON object that has it, None without one, and where it is
    null.

    A field of the object itself comes before one of objects within it. Where no object can be read
    (a stray quotation mark, an output that was cut), the last `"field": scalar` that follows a
    brace or a comma stands in.
    """
    return _first_in_views(text, response, lambda view: last_field(view, field), QUOTES_IN_JSON)


def _first_in_views(
    text: str, response: str, read: Callable[[str], Content | None], quotes: re.Pattern[str]
) -> Content | None:
    """The first content that `read` returns: from the judge's own words, else from ever more of the
    text.

    Places in views are places in `text`.
    """
    for view in views(text, response, quotes):
        content = read(view)
        if content is not None:
            return content
    return None
