"""Entries `reads`, `unclosed` and `thinking` of a reward: the part of the response that it reads.

reads      all (default), answer, reasoning, final, transcript, last, tools or turn:<n>
per        response (default), turn, or {turn: <how>}: every assistant turn is scored, and HOW makes
           the response's score: mean (default), min, max, sum or last. With each,
           training puts the scores on the turns' last tokens. Elsewhere each is mean
unclosed   of answer, reasoning and final, where the response ends inside its thinking: missing
           (default), read, or a number
thinking   of the same: opened, [open, close], or {tags: [open, close], opened: true}
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.config.numbers import is_number
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

PARTS = ("all", "answer", "reasoning", "final", "transcript", "last", "tools", "turn")
_TURNS = ("last", "tools", "turn")
_WHOLE = ("all", "transcript", *_TURNS)
"""Parts for which the thinking is not told from the rest."""
EACH = "each"
"""Each turn's score goes to its last token."""


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


PER_TURN: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "min": min,
    "max": max,
    "sum": math.fsum,
    "last": lambda values: values[-1],
    EACH: _mean,
}
"""How the turns' scores make the response's score."""
_ENTRIES = ("tags", "opened")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The part of a response that a reward reads."""

    part: str = "all"
    """One of PARTS."""
    unclosed: str | float = "missing"
    """missing: no verdict; read: the part as far as it is there; a number: the score."""
    tags: tuple[str, str] | None = None
    """Marks around the thinking, in the place of the known ones."""
    opened: bool = False
    """Every prompt ends inside a thinking block."""
    turn: int = 0
    """With the part `turn`: its number from 1, or from -1 at the end."""
    per_turn: str = ""
    """How the turns' scores make the response's score, a name in PER_TURN. "": the response is
    scored."""

    @property
    def parts_thinking(self) -> bool:
        """Whether the thinking is told from the rest."""
        return self.part not in _WHOLE

    @classmethod
    def parse(cls, entries: Mapping[str, Any], *, where: str) -> Reads:
        """Read these entries from the section at `where`. Raises ConfigError."""
        part, turn = _part(entries.get("reads") or "all", where=where)
        per_turn = _per_turn(entries.get("per"), where=where)
        if per_turn and part in _TURNS:
            raise ConfigError(
                f"{where}.reads={part} names turns itself, so {where}.per=turn has no effect: give"
                f" {where}.reads=all, answer, reasoning, final or transcript, or leave per out"
            )
        unclosed = entries.get("unclosed")
        if unclosed is None:
            unclosed = "missing"
        if unclosed not in ("missing", "read") and not is_number(unclosed):
            raise ConfigError(
                f"{where}.unclosed={unclosed!r}: give missing, read, or a number, the score of a"
                " response that ends inside its thinking"
            )
        entry = entries.get("thinking")
        settings: Mapping[str, Any] = {}
        if isinstance(entry, Mapping):
            settings = entry
        elif entry == "opened":
            settings = {"opened": True}
        elif entry is not None:
            settings = {"tags": entry}
        for key in settings:
            if key not in _ENTRIES:
                hint = did_you_mean(str(key), _ENTRIES)
                raise ConfigError(f"{where}.thinking.{key}: no such entry{hint}")
        tags = settings.get("tags")
        opened = settings.get("opened", False)
        pair = list(tags) if isinstance(tags, list | tuple) else []
        # White space around a mark is no part of it: texts differ in theirs.
        texts = [tag.strip() for tag in pair if isinstance(tag, str) and tag.strip()]
        is_pair = len(pair) == len(texts) == 2 and texts[0] != texts[1]
        is_said = is_pair or (tags is None and (opened or entry is None))
        if not is_said or not isinstance(opened, bool):
            raise ConfigError(
                f"{where}.thinking={entry!r}: give the opening and the closing mark, e.g."
                f" {where}.thinking=['<plan>','</plan>'], opened where the prompt ends inside a"
                " thinking block, or both as {tags: ['<plan>','</plan>'], opened: true}"
            )
        unused = [key for key in ("unclosed", "thinking") if entries.get(key) is not None]
        if unused and part in _WHOLE:
            raise ConfigError(
                f"{where}.{unused[0]} has no effect on reads={part}, which does not tell the"
                f" thinking from the rest: give {where}.reads=answer, reasoning or final, or leave"
                " it out"
            )
        marks = (texts[0], texts[1]) if is_pair else None
        return cls(
            part=part,
            unclosed=unclosed,
            tags=marks,
            opened=opened,
            turn=turn,
            per_turn=per_turn,
        )

    def __str__(self) -> str:
        text = self.part
        if self.part == "turn":
            text = f"turn:{self.turn}"
        if self.parts_thinking and self.unclosed != "missing":
            text += f", unclosed {self.unclosed}"
        if self.per_turn:
            text += f", {self.per_turn} of the turns"
        return text


def _part(entry: Any, *, where: str) -> tuple[str, int]:
    """Return the part, and the number behind `turn:`."""
    name, colon, number = str(entry).partition(":")
    if name == "turn" and re.fullmatch(r"-?[1-9]\d*", number):
        return name, int(number)
    if name == "turn":
        raise ConfigError(
            f"{where}.reads={entry}: give the turn's number, {where}.reads=turn:1 for the first"
            " assistant turn, turn:-1 for the last"
        )
    if colon or entry not in PARTS:
        raise ConfigError(f"{where}.reads={entry}: not a choice{did_you_mean(str(entry), PARTS)}")
    return name, 0


def _per_turn(entry: Any, *, where: str) -> str:
    how = ""
    if entry == "turn":
        how = "mean"
    elif isinstance(entry, Mapping) and list(entry) == ["turn"]:
        how = str(entry["turn"])
    if entry not in (None, "response") and how not in PER_TURN:
        raise ConfigError(
            f"{where}.per={entry}: give response, turn, or {{turn: HOW}} with one of"
            f" {', '.join(PER_TURN)}"
        )
    return how
