"""Load `patterns.yaml`, the table that says in which forms verdicts are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from rmrl.rewards.judging.numbers import COUNTS, NAMED, RATIO

_MARKS = f"{RATIO}?+{COUNTS}?+{NAMED}?+"
_MENTION = "\U000f0000-\U0010fffd"
_MENTIONS = {
    "X": f"[{_MENTION}]{_MARKS}",
    "ID": f"[{_MENTION}]|[A-Z]|[0-9]{{1,2}}",
    "U": f"[{_MENTION}]{RATIO}?+(?!{COUNTS}){NAMED}?+",
    "BARE": f"[{_MENTION}]{RATIO}?+(?![{COUNTS}{NAMED}])",
    "RATIO": f"[{_MENTION}]{RATIO}(?![{COUNTS}{NAMED}])",
}
"""Each becomes a group of its own name: "x1", "x2", ..."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A row in the table. The head of `patterns.yaml` explains the fields."""

    name: str
    regex: re.Pattern[str]
    form: str
    of: Sequence[str]
    prefers: Literal["first", "other", "tie", "both", "neither"]
    rank: int
    example: str
    counter: str

    only: Sequence[str]

    def guards(self, pattern: Pattern) -> bool:
        """Return whether this guard applies to `pattern`."""
        return not self.only or pattern.name in self.only

    def is_denied(self, match: re.Match[str]) -> bool:
        """Return whether the match denies itself, as in "A is not better"."""
        groups = match.groupdict().items()
        return any(content and re.match(r"no\d?$", name) for name, content in groups)

    def mention(self, match: re.Match[str]) -> str | None:
        """Return the first mention in a match."""
        groups = match.groupdict().items()
        return next((content for name, content in groups if content and name[0] == "x"), None)


@lru_cache(maxsize=1)
def table() -> Mapping[str, Pattern]:
    """Return the patterns by their names."""
    path = Path(__file__).with_name("patterns.yaml")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former is 7 times as fast
    content: Any = loader(path.read_text(encoding="utf-8")).get_single_data()
    fragments = cast("dict[str, str]", content["fragments"])
    return {row.name: row for row in _rows(content["patterns"], fragments)}


@lru_cache(maxsize=16)
def of_form(kind: str, *forms: str) -> Sequence[Pattern]:
    """Return the patterns in these forms for choices or numbers (`kind`)."""
    return [each for each in table().values() if each.form in forms and kind in each.of]


def _rows(sections: Mapping[str, Any], fragments: Mapping[str, str]) -> Iterator[Pattern]:
    for section, rows in sections.items():
        form, _, kind = section.partition(" of ")
        for name, row in rows.items():
            numbers = count(1)

            def filled(match: re.Match[str], numbers: Iterator[int] = numbers) -> str:
                fragment = match[1]
                if fragment == "V":
                    return _MENTION
                if fragment in _MENTIONS:
                    return f"(?P<x{next(numbers)}>{_MENTIONS[fragment]})"
                prefix = f"P<no{next(numbers)}>" if fragment == "NOT" else ":"
                text = "".join(fragments[fragment].splitlines())
                return f"(?{prefix}{re.sub(_FRAGMENT, filled, text)})"

            text = re.sub(_FRAGMENT, filled, "".join(row["pattern"].splitlines()))
            yield Pattern(
                name=name,
                regex=re.compile(text, re.IGNORECASE),
                form=form,
                of=[each for each in ("choice", "number") if kind in ("", each)],
                only=row.get("only", []),
                prefers=row.get("prefers", "first"),
                rank=row.get("rank", 3 if form == "stated" else 0),
                example=row["example"],
                counter=row["counter"],
            )


_FRAGMENT = r"\{([A-Z_]+)\}"
