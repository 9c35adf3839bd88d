r"""A user's own regular expression as a parser of verdicts.

For example `(?P<score>\d+) points` or `Winner: (?P<verdict>[AB])`. The syntax is that of Python's
`re`. A pattern may take exponential time on a text that was written for it, so matching runs in the
package `regex`, under a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import regex

from rmrl.rewards.judging.quotations import QUOTES_IN_JSON, views

TIME_LIMIT_S = 1.0
"""Seconds of processor time for one judge's output."""


@dataclass(frozen=True, slots=True)
class Match:
    """Result of a parser: the text of its main group (None without a match) and of its other
    groups."""

    verdict: str | None
    columns: Mapping[str, str | None]
    timed_out: bool = False


class Parser:
    """A compiled pattern. Its last match in the judge's own words counts; copies out of the
    response count least."""

    def __init__(self, pattern: str, group: str) -> None:
        """`group`: the named group that holds the verdict.

        Raises ValueError with the problem of the pattern, as the end of a sentence.
        """
        try:
            self._pattern: Any = regex.compile(pattern)
        except regex.error as error:
            # The message ends with the position: "unterminated character set at position 7".
            raise ValueError(f"no regular expression: {error}") from error
        names = tuple(self._pattern.groupindex)
        if group not in names:
            groups = "has no named group"
            if names:
                groups = f"has the named groups {', '.join(names)}"
            raise ValueError(
                f"{groups}; name the one that holds the verdict, as in (?P<{group}>...)"
            )
        self._group = group

    def read(self, text: str, *, response: str = "") -> Match:
        """The last match in `text`; `response` is what was judged."""
        try:
            for view in views(text, response, QUOTES_IN_JSON):
                matches = self._matches(view)
                if matches:
                    groups: dict[str, str | None] = matches[-1].groupdict()
                    verdict = groups.pop(self._group)
                    return Match(verdict, groups)
        except TimeoutError:
            return Match(None, {}, timed_out=True)
        return Match(None, {})

    def _matches(self, view: str) -> list[Any]:
        """Return all matches. Raises TimeoutError once this thread has spent the time on them.

        The clock of `regex` counts the processor time of all the process's threads: where most of
        it was that of others, such as an engine that computes, the search begins again with more.
        """
        limit_s = TIME_LIMIT_S
        while True:
            started = time.thread_time()
            try:
                return list(self._pattern.finditer(view, timeout=limit_s))
            except TimeoutError:
                if time.thread_time() - started >= TIME_LIMIT_S / 2:
                    raise
            limit_s *= 2


def parser_problem(pattern: Any, group: str) -> str:
    """Problem of a configured pattern, as the end of a sentence; "" without one or without a
    pattern."""
    if not isinstance(pattern, str):
        return f"give a regular expression with (?P<{group}>...) as text"
    if not pattern:
        return ""
    try:
        Parser(pattern, group)
    except ValueError as error:
        return str(error)
    return ""
